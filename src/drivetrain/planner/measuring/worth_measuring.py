"""Whether `--measure auto` measures: only where that takes seconds, and where updates fit the device."""

from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.devices.target import Target
from drivetrain.planner.measuring.measured_times import is_known

__all__ = ["why_not_measured"]

# A core of a CPU trains with some 1e10 to 5e10 FLOPs per second, and about ten updates are run: up to this
# many FLOPs, they take a few seconds.
_MOST_CPU_FLOPS = 5e10
_PASSES = 3


def why_not_measured(planned: PlannedRun, *, target: Target, fits: bool | None) -> str | None:
    """The reason to leave an update unmeasured; None to measure it."""
    if fits is False:
        return "The time of an update is not measured, because training does not fit the device."
    if is_known(planned, target=target):
        return None
    recipe, batch = planned.recipe, planned.training.batch
    if recipe.compile == "on":
        return "The time of an update is not measured, because compiling takes long; --measure on does it."
    flops = _PASSES * planned.totals.flops * batch.micro * batch.accumulation
    if target.is_cpu and flops > _MOST_CPU_FLOPS:
        return "The time of an update is not measured, as that takes long on this CPU; --measure on does it."
    return None
