"""What `drivetrain plan` makes, for the command and for Python: a plan, its search and its pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.drawing.draw_estimated import draw_estimated
from drivetrain.planner.estimate import Measure
from drivetrain.planner.planned import plan_with_estimate
from drivetrain.planner.search.asked import AskedSearch
from drivetrain.planner.search.resolve import search_recipe
from drivetrain.planner.search.result import SearchResult
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["AskedPlan", "make_asked_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPlan:
    """A plan as plain values, and the recipe that is planned: the searched one, if there was a search.

    `drawn` is a sentence about the pictures.
    """

    plan: dict[str, Any]
    resolved: ResolvedRecipe
    search: SearchResult | None
    drawn: str | None


def make_asked_plan(
    resolved: ResolvedRecipe,
    *,
    asked: AskedSearch | None,
    lr_at: Sequence[int],
    device: DescribedDevice | None,
    memory_limit_bytes: int | None,
    measure: Measure,
    pictures: Path | None,
    reporter: Reporter,
) -> AskedPlan:
    """Searches if `asked`, plans the recipe, and draws the planned update into the folder `pictures`."""
    found = None
    if asked is not None:
        found, resolved = search_recipe(resolved, asked, described=device, measure=measure, reporter=reporter)
    estimated = plan_with_estimate(
        resolved,
        lr_at=lr_at,
        device=device,
        memory_limit_bytes=memory_limit_bytes,
        measure=measure,
        reporter=reporter,
    )
    return AskedPlan(
        plan=estimated.plan if found is None else estimated.plan | {"search": found.as_json()},
        resolved=resolved,
        search=found,
        drawn=None if pictures is None else draw_estimated(estimated, pictures),
    )
