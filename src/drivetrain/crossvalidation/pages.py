"""The report of a cross-validation: crossval.csv, curves.png, README.md and the table on the terminal."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from drivetrain.catalogue.metrics import brief_metric, direction, is_of_classes, shown_metric
from drivetrain.console.figures import score_table
from drivetrain.console.tables import text_table
from drivetrain.core.files import write_atomically
from drivetrain.crossvalidation.results import FoldResult, Spread, Statistics, csv_text, table_rows
from drivetrain.pictures.pyplot import load_pyplot
from drivetrain.recipe.schema import Recipe
from drivetrain.store.crossval_directory import CrossvalDirectory

__all__ = ["class_lines", "result_line", "table_lines", "write_pages"]

# Layout of curves.png: more panels in a row, or one per class of many, would be too small to read.
_MOST_PANELS_IN_A_ROW = 3
_MOST_CLASS_PANELS = 6
_BY_CLASS = "By class, mean ± standard deviation over the folds at their last validation:"
_MEANS_SENTENCE = " Soft Dice, hard Dice and IoU in the table are means over classes, background included."

_FILES = {
    "crossval.json": "all validations of every fold, with means and standard deviations over the folds",
    "crossval.csv": "the table above, with all metrics",
    "curves.png": "validation metrics of every fold over the updates, and their mean",
    "fold-0/ ...": "one ordinary run directory per fold",
}


def write_pages(
    directory: CrossvalDirectory, *, recipe: Recipe, folds: Sequence[FoldResult], statistics: Statistics
) -> None:
    """Writes crossval.csv, curves.png and README.md of a finished cross-validation."""
    write_atomically(directory.table, csv_text(folds, statistics).encode())
    _draw_curves(directory, folds, statistics)
    lines = [
        f"# {directory.path.name}",
        "",
        f"`{recipe.model}` on `{recipe.dataset}`, {len(folds)} folds.",
        "",
    ]
    lines += [*_markdown(_shown_rows(folds, statistics)), "", _sentence(statistics), ""]
    if _class_rows(statistics):
        lines += [_BY_CLASS, "", *_markdown(_class_rows(statistics)), ""]
    lines += ["![validation of the folds](curves.png)", ""]
    lines += _markdown([["file", "what it is"], *([f"`{name}`", what] for name, what in _FILES.items())])
    write_atomically(directory.readme, ("\n".join(lines) + "\n").encode())


def table_lines(folds: Sequence[FoldResult], statistics: Statistics) -> list[str]:
    """The table for the terminal."""
    return text_table(_shown_rows(folds, statistics))


def class_lines(statistics: Statistics) -> list[str]:
    """The table of scores by class for the terminal, foreground first; empty for classification."""
    rows = _class_rows(statistics)
    return [_BY_CLASS, *text_table(rows)] if rows else []


def result_line(statistics: Statistics, *, folds: int) -> str:
    """The result in one line."""
    name, words = statistics.metric, shown_metric(statistics.metric)
    shown = f"validation_{name}" if words == name else f"validation {words}"
    return (
        f"{shown} over {folds} folds: {_shown(statistics.last[name])} at the last validation, "
        f"{_shown(statistics.best[name])} at the best validation of each fold (mean ± standard deviation)"
    )


def _sentence(statistics: Statistics) -> str:
    point = statistics.best_point
    spread = _shown(statistics.points[point][statistics.metric])
    return (
        f"The best validation of each fold is chosen by {shown_metric(statistics.metric)} "
        f"({direction(statistics.metric)}; see `--best-by`). The mean over the folds is best at validation "
        f"{point + 1} of {len(statistics.points)}: {spread}. Deviations are those of a sample (n - 1)."
        f"{_MEANS_SENTENCE if _class_rows(statistics) else ''}"
    )


def _class_rows(statistics: Statistics) -> list[list[str]]:
    """Scores of each class at the last validation: mean and standard deviation over the folds."""
    spreads = statistics.last.items()
    means, deviations = (
        score_table({name: getattr(spread, word) for name, spread in spreads})
        for word in ("mean", "standard_deviation")
    )
    pairs = zip(means[1:], deviations[1:], strict=True)
    rows = [[row[0], *map(" ± ".join, zip(row[1:], other[1:], strict=True))] for row, other in pairs]
    return [means[0], *rows] if rows else []


def _shown(spread: Spread) -> str:
    return f"{spread.mean:.4f} ± {spread.standard_deviation:.4f}"


def _shown_rows(folds: Sequence[FoldResult], statistics: Statistics) -> list[list[str]]:
    rows = table_rows(folds, statistics, shows=partial(_is_of_all_classes, best_by=statistics.metric))
    header = [_heading(str(word)) for word in rows[0]]
    return [header, *([_cell(value) for value in row] for row in rows[1:])]


def _is_of_all_classes(metric: str, *, best_by: str) -> bool:
    """Whether the table of folds shows a metric: scores of single classes only if they choose the best."""
    return metric == best_by or not is_of_classes(metric)


def _heading(column: str) -> str:
    when, _, metric = column.partition("_")
    if when not in ("last", "best") or metric == "update":
        return column.replace("_", " ")
    return f"{when} {brief_metric(metric).removesuffix(' (class mean)').replace('_', ' ')}"


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value).replace("_", " ")


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def _draw_curves(directory: CrossvalDirectory, folds: Sequence[FoldResult], statistics: Statistics) -> None:
    plt = load_pyplot()
    names = _drawn(statistics)
    columns = min(len(names), _MOST_PANELS_IN_A_ROW)
    rows = math.ceil(len(names) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5.5 * columns, 4 * rows), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(names) :]:
        axis.remove()
    for axis, name in zip(axes.flat[: len(names)], names, strict=True):
        for fold in folds:
            values = [evaluation[name] for evaluation in fold.evaluations]
            axis.plot(
                fold.updates, values, "o-", alpha=0.4, linewidth=1, markersize=3, label=f"fold {fold.fold}"
            )
        _draw_mean(axis, [point[name] for point in statistics.points], updates=folds[-1].updates)
        axis.set_xlabel("update")
        axis.set_ylabel(f"validation {shown_metric(name).replace('_', ' ')}")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(directory.curves, dpi=120)
    plt.close(figure)


def _drawn(statistics: Statistics) -> list[str]:
    """All metrics, but of the scores by class only the IoU of the first few classes, foreground first."""
    of_classes = [name for name in statistics.metrics if name.startswith("iou_")][:_MOST_CLASS_PANELS]
    shown = (*of_classes, statistics.metric)
    return [name for name in statistics.metrics if not is_of_classes(name) or name in shown]


def _draw_mean(axis: Any, spreads: Sequence[Spread], *, updates: Sequence[int]) -> None:
    places = updates[: len(spreads)]
    low = [spread.mean - spread.standard_deviation for spread in spreads]
    high = [spread.mean + spread.standard_deviation for spread in spreads]
    axis.fill_between(places, low, high, color="black", alpha=0.1)
    axis.plot(places, [spread.mean for spread in spreads], color="black", linewidth=2, label="mean")
