"""What a person opens after a cross-validation: a table, the curves of all folds, a README."""

import math
from collections.abc import Sequence
from typing import Any

from drivetrain.recipe.schema import Recipe
from drivetrain.run.crossval_directory import CrossvalDirectory
from drivetrain.run.crossval_results import FoldResult, Spread, Statistics, csv_text, table_rows
from drivetrain.run.files import write_atomically
from drivetrain.run.pyplot import load_pyplot
from drivetrain.run.text_table import text_table

__all__ = ["result_line", "table_lines", "write_pages"]

_MOST_PANELS_IN_A_ROW = 3

_FILES = {
    "crossval.json": "every fold's validations, means and standard deviations, each with a label",
    "crossval.csv": "the table above",
    "curves.png": "the validation of every fold, and their mean",
    "fold-0/ ...": "one ordinary run directory per fold",
}


def write_pages(
    directory: CrossvalDirectory, *, recipe: Recipe, folds: Sequence[FoldResult], statistics: Statistics
) -> None:
    """crossval.csv, curves.png and README.md of a finished job."""
    write_atomically(directory.table, csv_text(folds, statistics).encode())
    _draw_curves(directory, folds, statistics)
    lines = [
        f"# {directory.path.name}",
        "",
        f"`{recipe.model}` on `{recipe.dataset}`, {len(folds)} folds.",
        "",
    ]
    lines += [*_markdown(_shown_rows(folds, statistics)), "", _sentence(statistics), ""]
    lines += ["![validation of the folds](curves.png)", ""]
    lines += _markdown([["file", "what it is"], *([f"`{name}`", what] for name, what in _FILES.items())])
    write_atomically(directory.readme, ("\n".join(lines) + "\n").encode())


def table_lines(folds: Sequence[FoldResult], statistics: Statistics) -> list[str]:
    """The table for the terminal."""
    return text_table(_shown_rows(folds, statistics))


def result_line(statistics: Statistics, *, folds: int) -> str:
    """The result in one line."""
    name = statistics.metric
    return (
        f"validation_{name} over {folds} folds: {_shown(statistics.last[name])} at the last evaluation, "
        f"{_shown(statistics.best[name])} at each fold's best"
    )


def _sentence(statistics: Statistics) -> str:
    point = statistics.best_point
    spread = _shown(statistics.points[point][statistics.metric])
    return (
        f"The mean over the folds is best at evaluation point {point + 1} of {len(statistics.points)}: "
        f"{statistics.metric} {spread}. Deviations are those of a sample (n - 1)."
    )


def _shown(spread: Spread) -> str:
    return f"{spread.mean:.4f} ± {spread.standard_deviation:.4f}"


def _shown_rows(folds: Sequence[FoldResult], statistics: Statistics) -> list[list[str]]:
    rows = table_rows(folds, statistics)
    header = [str(word).replace("_", " ") for word in rows[0]]
    return [header, *([_cell(value) for value in row] for row in rows[1:])]


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value).replace("_", " ")


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def _draw_curves(directory: CrossvalDirectory, folds: Sequence[FoldResult], statistics: Statistics) -> None:
    plt = load_pyplot()
    names = statistics.metrics
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
        axis.set_ylabel(f"validation {name.replace('_', ' ')}")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(directory.curves, dpi=120)
    plt.close(figure)


def _draw_mean(axis: Any, spreads: Sequence[Spread], *, updates: Sequence[int]) -> None:
    places = updates[: len(spreads)]
    low = [spread.mean - spread.standard_deviation for spread in spreads]
    high = [spread.mean + spread.standard_deviation for spread in spreads]
    axis.fill_between(places, low, high, color="black", alpha=0.1)
    axis.plot(places, [spread.mean for spread in spreads], color="black", linewidth=2, label="mean")
