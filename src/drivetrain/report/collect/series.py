"""Lines of charts: plain numbers without NaN, and long ones shortened such that no extreme is lost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.report.contents import Cell, Series

__all__ = ["SHORTENED", "series_of", "series_of_events", "short"]

SHORTENED = "lowest and highest of every"
"""What the name of a shortened line says, before how many values became two."""

_DIGITS = 6
# In each bucket: the lowest, the highest, and the first value that is not finite.
_MOST_IN_A_BUCKET = 3
_FEWEST_POINTS = 8


def series_of(
    name: str,
    values: Sequence[float] | NDArray[np.float64],
    *,
    updates: Sequence[int],
    max_points: int | None,
) -> Series:
    """The line through values at updates; a shortened one says so in its name."""
    y, x = np.asarray(values, dtype=np.float64), np.asarray(updates, dtype=np.int64)
    if max_points is not None and len(y) > max(max_points, _FEWEST_POINTS):
        kept, width = _extremes(y, most=max(max_points, _FEWEST_POINTS))
        name, x, y = f"{name} ({SHORTENED} {width})", x[kept], y[kept]
    return Series(name=name, x=x.tolist(), y=_plain(y))


def series_of_events(
    name: str, events: Iterable[Mapping[str, Any]], key: str, *, max_points: int | None
) -> Series | None:
    """The line through the values that events have under a key; None if none has it."""
    own = [event for event in events if key in event and "update" in event]
    if not own:
        return None
    values = np.array([event[key] for event in own], dtype=np.float64)
    return series_of(name, values, updates=[event["update"] for event in own], max_points=max_points)


def _extremes(values: NDArray[np.float64], *, most: int) -> tuple[NDArray[np.int64], int]:
    """The indices of the extremes of equal buckets, with both ends, and how many values a bucket has."""
    is_finite = np.isfinite(values)
    in_a_bucket = 2 if is_finite.all() else _MOST_IN_A_BUCKET
    buckets = max(1, (most - 2) // in_a_bucket)
    width = -(-len(values) // buckets)
    rows = -(-len(values) // width)
    padding = (0, rows * width - len(values))
    lowest = np.pad(np.where(is_finite, values, np.inf), padding, constant_values=np.inf)
    highest = np.pad(np.where(is_finite, values, -np.inf), padding, constant_values=-np.inf)
    starts = np.arange(rows) * width
    found = [
        np.array([0, len(values) - 1]),
        starts + lowest.reshape(rows, width).argmin(1),
        starts + highest.reshape(rows, width).argmax(1),
    ]
    if not is_finite.all():
        is_gap = np.pad(~is_finite, padding).reshape(rows, width)
        found.append((starts + is_gap.argmax(1))[is_gap.any(1)])
    return np.unique(np.concatenate(found)).astype(np.int64), width


def short(value: Cell) -> Cell:
    """A number with as many digits as anybody reads; None for what is not finite."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    """Values with few digits; None for those that are not finite."""
    if np.isfinite(values).all():
        return [float(f"{value:.{_DIGITS}g}") for value in values.tolist()]
    return [float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]
