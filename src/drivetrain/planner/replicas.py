"""The all-reduce of the gradient over the replicas: its seconds, and how many of them an update waits."""

from dataclasses import dataclass
from math import ceil

from drivetrain.passes.gradient_sum import DEFAULT_BUFFER_BYTES
from drivetrain.plan.stage_report import RunMemory
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.costs import Link
from drivetrain.planner.devices.links import Links, LinkSource, all_reduce_seconds
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.recipe.layout import devices_per_replica, rank_count, stage_count

__all__ = ["AllReduce", "all_reduce_of", "all_reduce_times", "overlaps_all_reduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Seconds of the all-reduce, and those that no backward pass hides."""

    seconds: float
    exposed_s: float
    bytes: int
    overlaps: bool
    links: LinkSource


def all_reduce_of(
    planned: PlannedRun, memory: RunMemory, *, times: UpdateTimes, links: Links, is_cpu: bool
) -> AllReduce | None:
    """The all-reduce of an update; None with one replica.

    As in training: a model in one piece sums its buckets during the last backward pass, except small ones on
    a CPU; the last bucket is complete only at the end of that pass. Stages sum after their passes, each
    device its own gradients at the same time as the others.
    """
    recipe = planned.recipe
    if recipe.replicas < 2:
        return None
    size = _gradient_bytes(planned, memory)
    link = links.slowest(rank_count(recipe) if devices_per_replica(recipe) > 1 else recipe.replicas)
    in_one_piece = stage_count(recipe) == 1 and not recipe.recomputation
    overlaps = in_one_piece and overlaps_all_reduce(size, is_cpu=is_cpu)
    seconds, exposed = all_reduce_times(
        size,
        replicas=recipe.replicas,
        link=link,
        buffer_bytes=recipe.max_cross_replica_buffer_size or DEFAULT_BUFFER_BYTES,
        hidden_by_s=times.last_backward_s if overlaps else 0.0,
    )
    return AllReduce(seconds=seconds, exposed_s=exposed, bytes=size, overlaps=overlaps, links=links.source)


def all_reduce_times(
    size_bytes: float, *, replicas: int, link: Link, buffer_bytes: int, hidden_by_s: float
) -> tuple[float, float]:
    """Seconds of an all-reduce, and those that no backward pass hides: at least its last bucket."""
    buckets = max(1, ceil(size_bytes / buffer_bytes))
    seconds = all_reduce_seconds(size_bytes, ranks=replicas, link=link, buckets=buckets)
    return seconds, max(seconds / buckets, seconds - hidden_by_s)


def overlaps_all_reduce(size_bytes: float, *, is_cpu: bool) -> bool:
    """As `pays_to_overlap` decides for a model in one piece, on a device that need not be on this machine."""
    return not is_cpu or size_bytes > DEFAULT_BUFFER_BYTES


def _gradient_bytes(planned: PlannedRun, memory: RunMemory) -> int:
    """The gradients of the device that has most of them."""
    if memory.prediction is not None:
        return max(device.gradients for device in memory.prediction.devices)
    itemsize = 2 if planned.recipe.precision == "16.16" else 4
    return planned.totals.trainable * itemsize
