"""What a run's plan.json tells a later command, which can do without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivetrain.core.files import read_json

__all__ = ["VALIDATION_KEY", "plan_problem", "stored_cut", "stored_plan"]

VALIDATION_KEY = "validation"
"""Where a plan keeps how often its run validates."""


def stored_plan(path: Path) -> dict[str, Any]:
    """A run's plan; empty where there is none that can be read."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def plan_problem(path: Path) -> str | None:
    """What is wrong with a plan that is there, and what follows from that."""
    try:
        if path.exists():
            read_json(path)
    except (OSError, ValueError) as error:
        return f"{error}; it is made anew, and what a run decides at its start is decided again."
    return None


# The cut that a run has measured before, from its plan.json.


def stored_cut(plan: Mapping[str, Any], *, stages: int) -> tuple[str, ...] | None:
    """The first layers of stages 1, 2, ... that `--split-by time` chose; None where it chose none so many."""
    splits = plan.get("splits")
    if not isinstance(splits, Mapping) or splits.get("by") != "time":
        return None
    firsts = tuple(map(str, splits.get("recommended", ())))
    return firsts if len(firsts) == stages - 1 else None
