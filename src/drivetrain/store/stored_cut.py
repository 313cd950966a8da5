"""The cut that a run has measured before, from its plan.json."""

from collections.abc import Mapping
from typing import Any

__all__ = ["stored_cut"]


def stored_cut(plan: Mapping[str, Any], *, stages: int) -> tuple[str, ...] | None:
    """The first layers of stages 1, 2, ... that `--split-by time` chose; None where it chose none so many."""
    splits = plan.get("splits")
    if not isinstance(splits, Mapping) or splits.get("by") != "time":
        return None
    firsts = tuple(map(str, splits.get("recommended", ())))
    return firsts if len(firsts) == stages - 1 else None
