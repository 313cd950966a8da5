"""What a run's plan.json tells a later command, which can do without it."""

from pathlib import Path
from typing import Any

from drivetrain.core.files import read_json

__all__ = ["VALIDATION_KEY", "plan_problem", "stored_plan"]

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
