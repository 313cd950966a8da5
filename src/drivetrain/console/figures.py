"""Formats numbers for people: scores per class, foreground first, and images per second."""

import math
from collections.abc import Mapping
from typing import Any

from drivetrain.catalogue.metrics import ClassScores, class_scores, is_of_classes
from drivetrain.console.tables import text_table

__all__ = ["plain_numbers", "rounded_speed", "score_lines", "score_table", "speed_text", "table_lines"]

# With more classes than fit in a line, only the means and the lowest scores are printed.
_MOST_CLASSES_IN_A_LINE = 6
_LOWEST_NAMED = 3
_OF_A_VALIDATION = ("soft Dice", "IoU")
_MEAN, _FOREGROUND_MEAN = "mean over classes", "mean over foreground classes"
_WHOLE_FROM = 10.0


def score_lines(metrics: Mapping[str, Any]) -> list[str]:
    """One line each for soft Dice and IoU of a segmentation; empty for classification."""
    scores = class_scores(metrics)
    return [f"{words}: {_in_a_line(scores[words])}" for words in _OF_A_VALIDATION if words in scores]


def score_table(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Rows of a table: a header, one row per class, then the means; empty for classification."""
    scores = class_scores(metrics)
    columns = [_column(found) for found in scores.values()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(_cell(column.get(name)) for column in columns)] for name in names]
    return [["class", *scores], *rows] if rows else []


def table_lines(metrics: Mapping[str, Any]) -> list[str]:
    """The score table as indented lines of text; empty for classification."""
    table = score_table(metrics)
    return [f"    {line}" for line in text_table(table)] if table else []


def plain_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a validation that are not part of the score table, by name."""
    of_classes = bool(class_scores(metrics))
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, float) and not (of_classes and _is_in_table(name))
    }


def _is_in_table(name: str) -> bool:
    return is_of_classes(name) or name in ("dice", "hard_dice", "iou")


def _in_a_line(scores: ClassScores) -> str:
    means = ", ".join(f"{name} {value:.4f}" for name, value in _means(scores).items())
    classes = scores.by_class
    if not classes:
        return means
    if len(classes) <= _MOST_CLASSES_IN_A_LINE:
        return f"{', '.join(_named(*item) for item in classes.items())}; {means}"
    lowest = sorted(classes.items(), key=lambda item: item[1])[:_LOWEST_NAMED]
    named = ", ".join(_named(*item) for item in lowest)
    return f"{means}; lowest of {len(classes)} classes: {named}"


def _named(name: str, value: float) -> str:
    """A class with its score; a name that is a number would read as one."""
    return f"{'class ' if name.isdecimal() else ''}{name} {value:.4f}"


def _means(scores: ClassScores) -> dict[str, float]:
    """The means to show. With two classes the foreground is a single class, so it needs no mean."""
    means = (
        {}
        if scores.foreground is None or len(scores.by_class) <= 2
        else {_FOREGROUND_MEAN: scores.foreground}
    )
    return means if scores.mean is None else {**means, _MEAN: scores.mean}


def _column(scores: ClassScores) -> dict[str, float]:
    return {**scores.by_class, **_means(scores)}


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def speed_text(images_per_second: float) -> str:
    """Images per second as text: a whole number from 10 on, two significant digits below."""
    if not 0.0 < images_per_second < _WHOLE_FROM - 0.05:
        return f"{images_per_second:.0f}"
    return f"{images_per_second:.{1 - math.floor(math.log10(images_per_second))}f}"


def rounded_speed(images_per_second: float) -> float:
    """Images per second for files: one decimal from 10 on, three significant digits below."""
    if images_per_second >= _WHOLE_FROM or not math.isfinite(images_per_second):
        return round(images_per_second, 1)
    return float(f"{images_per_second:.3g}")
