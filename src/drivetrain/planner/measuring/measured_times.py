"""The times of a recipe as measured on this machine: a whole update, and its layers if it has stages."""

from dataclasses import replace

from drivetrain.console.reporter import Reporter
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.devices.target import Target
from drivetrain.planner.measuring.measured_layers import measure_layers
from drivetrain.planner.measuring.measured_update import MeasuredUpdate, known_update, measure_update
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.recipe.layout import stage_count

__all__ = ["is_known", "largest_share", "measured_times"]

# The backward pass of a model takes about twice as long as its forward pass.
_BACKWARD_SHARE = 2 / 3
_KEPT = "Measured earlier: --measure on measures anew."


def is_known(planned: PlannedRun, *, target: Target) -> bool:
    """Whether an earlier command has measured the update."""
    return known_update(planned, target=target) is not None


def measured_times(
    planned: PlannedRun, *, target: Target, anew: bool = False, reporter: Reporter
) -> UpdateTimes:
    """Measures what is needed: the layers only of a model in stages; what is kept only if `anew`."""
    kept = None if anew else known_update(planned, target=target)
    update = kept or measure_update(planned, target=target, reporter=reporter)
    if stage_count(planned.recipe) == 1:
        times = _in_one_piece(planned, update)
    else:
        whole = measure_layers(planned, update, target=target, anew=anew, reporter=reporter)
        times = replace(whole, update_s=largest_share(planned) * whole.update_s)
    return times if kept is None else replace(times, notes=(*times.notes, _KEPT))


def largest_share(planned: PlannedRun) -> float:
    """The most trained weights on a device, as a share of all: a device steps only those of its stages."""
    plan = planned.outline.plan
    assert plan is not None, "a model in stages"
    trained = [0] * plan.devices
    for stage in plan.cut().stages:
        weights = (weight.numel() for weight in stage.parameters() if weight.requires_grad)
        trained[plan.device_of[stage.stage_facts.index]] += sum(weights)
    return max(trained) / sum(trained) if any(trained) else 1.0


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
