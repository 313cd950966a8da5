"""The times of all layers of a recipe's model, for whoever cuts it into stages."""

from dataclasses import replace
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.plan.stage_report import memory_of_run
from drivetrain.plan.training_plan import look_into
from drivetrain.planner.costs import ModelTimes
from drivetrain.planner.devices.target import Target
from drivetrain.planner.measuring.measured_times import measured_times
from drivetrain.planner.roofline import described_times
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["model_times"]

# Any cut has the same layers. Two stages are the smallest that run as stages run: layer by layer, uncaptured.
_ANY_CUT: dict[str, Any] = {
    "replicas": 1,
    "devices": None,
    "stages": 2,
    "pipeline_splits": (),
    "device_mapping": (),
    "stage_options": (),
    "recomputation": False,
    "optimise_for": None,
    "split_by": "cost",
    "dbn_replica_group_size": 1,
}


def model_times(resolved: ResolvedRecipe, *, target: Target, reporter: Reporter) -> ModelTimes | None:
    """The times of layers in stages, at the recipe's micro-batch: described, or measured on this machine.

    None if the target is neither described nor on this machine. Raises BadInputError if the model cannot be
    traced, or its data not be opened.
    """
    planned = look_into(replace(resolved, recipe=resolved.recipe.model_copy(update=_ANY_CUT)))
    if target.described is not None:
        memory = memory_of_run(planned.outline, finds_savings=False)
        return described_times(planned, memory, target.described).layers
    if not target.can_measure:
        return None
    return measured_times(planned, target=target, reporter=reporter).layers
