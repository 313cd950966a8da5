"""The times of a recipe as measured on this machine: a whole update, and its layers if it has stages."""

from drivetrain.console.reporter import Reporter
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.devices.target import Target
from drivetrain.planner.measuring.measured_layers import measure_layers
from drivetrain.planner.measuring.measured_update import MeasuredUpdate, known_update, measure_update
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.recipe.layout import stage_count

__all__ = ["is_known", "measured_times"]

# The backward pass of a model takes about twice as long as its forward pass.
_BACKWARD_SHARE = 2 / 3


def is_known(planned: PlannedRun, *, target: Target) -> bool:
    """Whether an earlier command has measured the update."""
    return known_update(planned, target=target) is not None


def measured_times(planned: PlannedRun, *, target: Target, reporter: Reporter) -> UpdateTimes:
    """Measures what is needed: the layers only of a model in stages."""
    update = measure_update(planned, target=target, reporter=reporter)
    if stage_count(planned.recipe) == 1:
        return _in_one_piece(planned, update)
    return measure_layers(planned, update, target=target, reporter=reporter)


def _in_one_piece(planned: PlannedRun, update: MeasuredUpdate) -> UpdateTimes:
    return UpdateTimes(
        passes_s=update.update_s - update.optimiser_s,
        last_backward_s=_BACKWARD_SHARE * update.micro_batch_s,
        update_s=update.optimiser_s,
        source="measured",
        notes=_notes(planned),
    )


def _notes(planned: PlannedRun) -> tuple[str, ...]:
    if planned.recipe.compile != "auto":
        return ()
    return ("Measured uncompiled: --compile auto decides when training starts.",)
