"""Keeps a page of many runs below its limit of size: shorter curves first, then fewer options."""

import json
from collections.abc import Callable, Sequence

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.messages import DEFAULT
from drivetrain.report.collect.series import SHORTENED
from drivetrain.report.contents import Curve, PageContents, RunContents

__all__ = ["MOST_BYTES", "fit"]

MOST_BYTES = 2_700_000
"""The most bytes of contents in a page, which may have 3 MB with its script and its styles."""

_FEWEST_POINTS = 16
# Lines that are short already do not get shorter, so the first guess may not be enough.
_MOST_GUESSES = 6

CurvesOf = Callable[[int], Sequence[list[Curve]]]


def fit(
    contents: PageContents, curves_of: CurvesOf, *, points: int, full: int, most_bytes: int = MOST_BYTES
) -> None:
    """Makes the contents small enough, and says what was done.

    The curves have at most `points` points a line, `full` on the page of one run; `curves_of` collects those
    of each run with fewer.
    """
    runs = contents["runs"]
    for _ in range(_MOST_GUESSES):
        size = _size(contents)
        if size <= most_bytes or points <= _FEWEST_POINTS:
            break
        curves = sum(_size(run["curves"]) for run in runs)
        share = max(0.0, (most_bytes - size + curves) / curves)
        points = max(_FEWEST_POINTS, min(points * 3 // 4, int(points * share)))
        for run, fewer in zip(runs, curves_of(points), strict=True):
            run["curves"] = fewer
    notes = []
    if points < full and any(map(_is_shortened, runs)):
        notes.append(f"Each line has at most {points} points here; the page of a single run has more.")
    if _size(contents) > most_bytes:
        for run in runs:
            run["recipe"] = [value for value in run["recipe"] if value["origin"] != DEFAULT]
        notes.append("Recipes show no defaults here; the page of a single run does.")
    if _size(contents) > most_bytes:
        raise BadInputError(f"RUN names {len(runs)} runs, too many for one page; name at most a hundred.")
    if notes:
        contents["notes"] = notes


def _is_shortened(run: RunContents) -> bool:
    return any(SHORTENED in series["name"] for curve in run["curves"] for series in curve["series"])


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))
