"""The layouts without their cuts, and how long their updates take at least."""

from collections.abc import Iterator
from dataclasses import dataclass

from drivetrain.planner.search.layout import exposed_sum_seconds
from drivetrain.planner.search.problem import Problem, micro_batches_of
from drivetrain.planner.search.segments import Segments

__all__ = ["Family", "families", "least_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Everything about a layout except its cut and which stages recompute."""

    device_of: tuple[int, ...]
    schedule: str
    replicas: int
    micro: int
    accumulation: int
    group: int
    offloads: bool

    @property
    def devices_per_replica(self) -> int:
        return max(self.device_of) + 1

    @property
    def is_plain(self) -> bool:
        """Whether every device has one stage."""
        return len(self.device_of) == self.devices_per_replica


def families(problem: Problem) -> Iterator[Family]:
    """All families that keep the global batch and the normalised set."""
    for per_replica in range(1, problem.devices + 1):
        for replicas in range(1, problem.devices // per_replica + 1):
            if problem.replicas in (None, replicas):
                yield from _of_devices(problem, per_replica, replicas)


def _of_devices(problem: Problem, per_replica: int, replicas: int) -> Iterator[Family]:
    for device_of in _mappings(problem, per_replica):
        for micro, group in micro_batches_of(problem, replicas=replicas):
            accumulation = problem.global_batch // (replicas * micro)
            for schedule in _schedules(problem, device_of, accumulation):
                for offloads in (False, True) if problem.memory_limit is not None else (False,):
                    yield Family(
                        device_of=device_of,
                        schedule=schedule,
                        replicas=replicas,
                        micro=micro,
                        accumulation=accumulation,
                        group=group,
                        offloads=offloads,
                    )


def _mappings(problem: Problem, per_replica: int) -> list[tuple[int, ...]]:
    """One stage per device; and two, in rounds (0 1 0 1) or forth and back (0 1 1 0)."""
    devices = tuple(range(per_replica))
    found = [devices]
    if per_replica > 1:
        found += [(*devices, *devices), (*devices, *reversed(devices))]
    most = len(problem.starts) + 1
    return [each for each in found if len(each) <= most and problem.stages in (None, len(each))]


def _schedules(problem: Problem, device_of: tuple[int, ...], accumulation: int) -> list[str]:
    if max(device_of) == 0:
        return ["sequential" if "sequential" in problem.schedules else problem.schedules[0]]
    whole_groups = accumulation % (2 * len(device_of)) == 0
    return [name for name in problem.schedules if name != "grouped" or whole_groups]


def least_seconds(problem: Problem, family: Family, segments: Segments) -> float:
    """A bound below the update of every layout of a family."""
    per_replica, count = family.devices_per_replica, family.accumulation
    passes = count * max(segments.total_s / per_replica, segments.largest_layer_s)
    if family.schedule == "sequential":
        passes = count * segments.total_s
    elif family.is_plain and family.schedule != "zero-bubble":
        # A device runs all its passes after the first forward and before the last backward passes of the
        # devices before it: update >= count * own + before. No split gives a smaller maximum than the one
        # that makes all of these equal.
        passes = max(passes, segments.total_s / (1 - (1 - 1 / count) ** per_replica))
    gradients = float(segments.gradient_bytes[0, -1]) / per_replica
    summed_s = exposed_sum_seconds(
        problem,
        replicas=family.replicas,
        devices_per_replica=per_replica,
        size=gradients,
        backward_s=float(segments.backward_s[0, -1]) if len(family.device_of) == 1 else 0.0,
    )
    return passes + summed_s + problem.update_s
