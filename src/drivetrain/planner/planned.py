"""The plan of a recipe with its estimate, as `drivetrain plan --json` prints it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.plan.stage_report import RunMemory, memory_of_run
from drivetrain.plan.training_plan import PlannedRun, look_into, plan_of_run
from drivetrain.planner.changes.advise import advise
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.devices.target import find_target
from drivetrain.planner.estimate import Measure, UpdateEstimate, estimate_run, for_device
from drivetrain.planner.plan_report import add_estimate
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["EstimatedPlan", "plan_with_estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedPlan:
    """A plan as plain values, and what it was made from."""

    plan: dict[str, Any]
    planned: PlannedRun
    memory: RunMemory
    estimate: UpdateEstimate


def plan_with_estimate(
    resolved: ResolvedRecipe,
    *,
    lr_at: Sequence[int] = (),
    device: DescribedDevice | None = None,
    memory_limit_bytes: int | None = None,
    measure: Measure = "auto",
    reporter: Reporter,
) -> EstimatedPlan:
    """The plan of a recipe, with the time of an update and the memory of each device."""
    planned = look_into(for_device(resolved, device))
    memory = memory_of_run(planned.outline)
    target = find_target(planned.recipe, described=device, memory_limit_bytes=memory_limit_bytes)
    estimate = estimate_run(planned, memory, target=target, measure=measure, reporter=reporter)
    plan = add_estimate(plan_of_run(planned, lr_at=lr_at, memory=memory), estimate)
    if estimate.fits is False:
        with reporter.showing("looking for a change that fits"):
            advice = advise(planned, estimate)
        if advice is not None:
            plan |= {"advice": advice.to_json() | {"sentence": advice.sentence}}
    return EstimatedPlan(plan=plan, planned=planned, memory=memory, estimate=estimate)
