"""Reads plan.json of a run for later commands; all of them work without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivetrain.core.files import read_json

__all__ = [
    "COMPILE_KEY",
    "FITTED_KEY",
    "REASONS_KEY",
    "VALIDATION_KEY",
    "kept_fit",
    "kept_reasons",
    "plan_problem",
    "stored_cut",
    "stored_plan",
]

COMPILE_KEY = "compile"
"""The key of plan.json for whether the run is compiled, and why."""
VALIDATION_KEY = "validation"
"""The key of plan.json for the chosen validation interval."""
REASONS_KEY = "chosen_by_rules"
"""The key of plan.json for the options that rules set, each with its reason."""


FITTED_KEY = "fitted"
"""The key of plan.json for what was asked for, and used instead, where the memory did not suffice."""


def stored_plan(path: Path) -> dict[str, Any]:
    """The plan of a run; empty if it is missing or damaged."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def kept_reasons(path: Path) -> dict[str, str]:
    """Why rules set the options of a run, by field; empty for other runs."""
    reasons = stored_plan(path).get(REASONS_KEY, {})
    return {str(field): str(reason) for field, reason in reasons.items()}


def kept_fit(path: Path) -> tuple[dict[str, int | None], dict[str, int | None]] | None:
    """What a run was asked for and uses instead to fit the memory; None if it uses what was asked for."""
    fitted = stored_plan(path).get(FITTED_KEY)
    return None if fitted is None else (fitted["asked"], fitted["used"])


def plan_problem(path: Path) -> str | None:
    """A warning about a damaged plan.json; None if it is fine or missing."""
    try:
        if path.exists():
            read_json(path)
    except (OSError, ValueError) as error:
        return (
            f"{error}; it is written again, and the run repeats its choices about compiling and validation."
        )
    return None


def stored_cut(plan: Mapping[str, Any], *, stages: int) -> tuple[str, ...] | None:
    """The first layers of stages 1, 2, ... that --split-by time measured; None if not for `stages` stages."""
    splits = plan.get("splits")
    if not isinstance(splits, Mapping) or splits.get("by") != "time":
        return None
    firsts = tuple(map(str, splits.get("recommended", ())))
    return firsts if len(firsts) == stages - 1 else None
