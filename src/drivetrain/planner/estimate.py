"""How fast a recipe will train and how much memory it needs, before it starts."""

from dataclasses import dataclass, replace
from typing import Literal

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.plan.stage_report import RunMemory, memory_of_run
from drivetrain.plan.training_plan import PlannedRun, look_into
from drivetrain.planner.costs import CostSource, Link
from drivetrain.planner.device_memory import DeviceMemory, device_memories
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.devices.links import LinkSource, find_links
from drivetrain.planner.devices.target import Target, find_target
from drivetrain.planner.measuring.measured_times import measured_times
from drivetrain.planner.measuring.worth_measuring import why_not_measured
from drivetrain.planner.replicas import AllReduce, all_reduce_of
from drivetrain.planner.roofline import described_times
from drivetrain.planner.stage_times import StageTimes, stage_times
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.recipe.layout import rank_count, stage_count
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["Measure", "UpdateEstimate", "estimate_recipe", "estimate_run", "for_device"]

Measure = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEstimate:
    """The time of an update and the memory of each device of a replica.

    Seconds are None if neither this device was measured nor one is described; `notes` says why. `stages` is
    None for a model in one piece. An update takes `passes_s` for its micro-batches and then `rest_s`; `link`
    is the one between the devices of a replica.
    """

    seconds_per_update: float | None
    images_per_update: int
    total_updates: int
    source: CostSource | None
    target: Target
    devices: tuple[DeviceMemory, ...]
    stages: StageTimes | None = None
    all_reduce: AllReduce | None = None
    passes_s: float | None = None
    rest_s: float = 0.0
    link: Link | None = None
    links: LinkSource = "default"
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float | None:
        """Training images of all replicas per second."""
        seconds = self.seconds_per_update
        return None if not seconds else self.images_per_update / seconds

    @property
    def training_s(self) -> float | None:
        """Seconds of all updates, without validations, checkpoints and the start."""
        seconds = self.seconds_per_update
        return None if seconds is None else seconds * self.total_updates

    @property
    def fits(self) -> bool | None:
        """Whether every device has room; None if that is not known."""
        known = [device.fits for device in self.devices]
        if not known or None in known:
            return None
        return all(known)

    @property
    def peak_bytes(self) -> int | None:
        """The largest peak of a device; None if it cannot be predicted."""
        return max((device.peak_bytes for device in self.devices), default=None)


def estimate_recipe(
    resolved: ResolvedRecipe,
    *,
    device: DescribedDevice | None = None,
    memory_limit_bytes: int | None = None,
    measure: Measure = "on",
    reporter: Reporter | None = None,
) -> UpdateEstimate:
    """The estimate of a recipe on the device that it names, or on a described `device`."""
    planned = look_into(for_device(resolved, device))
    target = find_target(planned.recipe, described=device, memory_limit_bytes=memory_limit_bytes)
    memory = memory_of_run(planned.outline)
    if reporter is not None:
        return estimate_run(planned, memory, target=target, measure=measure, reporter=reporter)
    with Reporter(quiet=True) as quiet:
        return estimate_run(planned, memory, target=target, measure=measure, reporter=quiet)


def for_device(resolved: ResolvedRecipe, device: DescribedDevice | None) -> ResolvedRecipe:
    """The recipe for a described device, which need not be of the kind that this machine has."""
    if device is None:
        return resolved
    return replace(resolved, recipe=resolved.recipe.model_copy(update={"device": device.kind}))


def estimate_run(
    planned: PlannedRun, memory: RunMemory, *, target: Target, measure: Measure, reporter: Reporter
) -> UpdateEstimate:
    """The estimate of a planned run whose memory is predicted already."""
    devices = () if memory.prediction is None else device_memories(planned, memory.prediction, target=target)
    plain = UpdateEstimate(
        seconds_per_update=None,
        images_per_update=planned.training.batch.global_batch,
        total_updates=planned.training.epochs.total_updates,
        source=None,
        target=target,
        devices=devices,
    )
    times, note = _times(planned, memory, target=target, measure=measure, reporter=reporter, fits=plain.fits)
    if times is None:
        return replace(plain, notes=() if note is None else (note,))
    return _with_times(plain, planned, memory, times)


def _times(
    planned: PlannedRun,
    memory: RunMemory,
    *,
    target: Target,
    measure: Measure,
    reporter: Reporter,
    fits: bool | None,
) -> tuple[UpdateTimes | None, str | None]:
    """The times of a replica, or why there are none."""
    if target.described is not None:
        return described_times(planned, memory, target.described), None
    if measure == "off":
        return None, "--measure off: the time of an update is not known."
    if target.here is None:
        return None, f"--device {target.name} is not on this machine; --device-file FILE describes one."
    why = why_not_measured(planned, target=target, fits=fits) if measure == "auto" else None
    if why is not None:
        return None, why
    try:
        return measured_times(planned, target=target, anew=measure == "on", reporter=reporter), None
    except Exception as error:
        is_refused = isinstance(error, BadInputError)
        if measure == "on" and is_refused:
            raise
        why = str(error) if is_refused else describe_failure(error)
        return None, f"The time of an update could not be measured: {why}"


def _with_times(
    plain: UpdateEstimate, planned: PlannedRun, memory: RunMemory, times: UpdateTimes
) -> UpdateEstimate:
    target, recipe = plain.target, planned.recipe
    links = find_links(target, ranks=rank_count(recipe))
    reduced = all_reduce_of(planned, memory, times=times, links=links, is_cpu=target.is_cpu)
    stages = None
    passes_s = times.passes_s
    if stage_count(recipe) > 1:
        stages = stage_times(planned, memory, times=times, links=links)
        passes_s = stages.passes_s
    passes_s *= target.sharing
    rest_s = times.update_s * target.sharing + (0.0 if reduced is None else reduced.exposed_s)
    plan = planned.outline.plan
    return replace(
        plain,
        seconds_per_update=passes_s + rest_s,
        passes_s=passes_s,
        rest_s=rest_s,
        link=None if plan is None or plan.devices == 1 else links.slowest(plan.devices),
        source=times.source,
        stages=stages,
        all_reduce=reduced,
        links=links.source,
        notes=times.notes,
    )
