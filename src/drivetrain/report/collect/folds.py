"""The folds of a cross-validation: a row for each, the spread over them, and their curves."""

from collections.abc import Sequence

import numpy as np

from drivetrain.catalogue.metrics import brief_metric, higher_is_better, is_of_classes, shown_metric
from drivetrain.crossvalidation.results import FoldResult, Statistics, table_rows
from drivetrain.report.collect.curves import NOT_METRICS, drawn_first, speed_unit
from drivetrain.report.collect.results import last_update
from drivetrain.report.collect.series import series_of, series_of_events, short
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import Cell, Curve, Folds, Series, Table

__all__ = ["finished_table", "fold_curves", "unfinished_table"]


def finished_table(folds: Sequence[FoldResult], statistics: Statistics) -> Folds:
    """The last and the best validation of every fold, and mean and deviation of each metric."""

    def shows(name: str) -> bool:
        return name == statistics.metric or not is_of_classes(name)

    header, *rows = table_rows(folds, statistics, shows=shows)
    own = rows[: len(folds)]
    spread: list[list[Cell]] = [
        [shown_metric(name), when, each.mean, each.standard_deviation]
        for when, found in (("last", statistics.last), ("best", statistics.best))
        for name, each in found.items()
    ]
    return Folds(
        table=Table(
            title="Folds",
            columns=[_heading(str(name)) for name in header],
            rows=[[short(cell) for cell in row] for row in own],
        ),
        spread=Table(
            title="Spread over the folds",
            columns=["metric", "validation", "mean", "standard deviation"],
            rows=_shortened(spread),
        ),
    )


def _shortened(rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    return [[short(cell) for cell in row] for row in rows]


def unfinished_table(folds: Sequence[tuple[int, StoredRun]], metric: str | None) -> Folds:
    """How far every fold that has begun is, and its last validation; no spread yet."""
    rows: list[list[Cell]] = []
    for number, fold in folds:
        last = fold.validations[-1] if fold.validations else {}
        value = last.get(metric) if metric is not None else None
        rows.append([number, fold.state, last_update(fold), value])
    last_column = "last validation" if metric is None else f"last {brief_metric(metric)}"
    columns = ["fold", "state", "update", last_column]
    empty = Table(title="Spread over the folds", columns=["metric", "mean", "standard deviation"], rows=[])
    return Folds(table=Table(title="Folds", columns=columns, rows=rows), spread=empty)


def fold_curves(folds: Sequence[tuple[int, StoredRun]], *, max_points: int | None) -> list[Curve]:
    """The validations of every fold with their mean, then learning rate and throughput of the folds."""
    names = [
        name
        for _, fold in folds
        for event in (*fold.validations[:1], *fold.validations[-1:])
        for name in event
        if name not in NOT_METRICS and not is_of_classes(name)
    ]
    return [
        Curve(
            id=name,
            title=shown_metric(name),
            unit="",
            lower_is_better=not higher_is_better(name),
            series=lines,
        )
        for name in drawn_first(names)
        if (lines := _validations(name, folds, max_points=max_points))
    ] + _speeds(folds, max_points=max_points)


def _validations(
    name: str, folds: Sequence[tuple[int, StoredRun]], *, max_points: int | None
) -> list[Series]:
    found = [
        series_of_events(f"fold {number}", fold.validations, name, max_points=max_points)
        for number, fold in folds
    ]
    lines = [line for line in found if line is not None]
    mean = _mean([{e["update"]: e.get(name) for e in fold.validations} for _, fold in folds])
    if len(folds) > 1 and mean:
        updates = list(mean)
        lines.append(
            series_of("mean over the folds", list(mean.values()), updates=updates, max_points=max_points)
        )
    return lines


def _mean(points: Sequence[dict[int, object]]) -> dict[int, float]:
    """The mean at the updates at which all folds were validated."""
    shared = [
        update for update in points[0] if all(isinstance(own.get(update), int | float) for own in points)
    ]
    return {update: float(np.mean([float(str(own[update])) for own in points])) for update in shared}


def _speeds(folds: Sequence[tuple[int, StoredRun]], *, max_points: int | None) -> list[Curve]:
    name = "images_per_second"
    found = [
        series_of_events(f"fold {number}", fold.trainings, name, max_points=max_points)
        for number, fold in folds
    ]
    lines = [line for line in found if line is not None]
    if not lines:
        return []
    unit = speed_unit(folds[0][1])
    return [Curve(id=name, title="throughput", unit=unit, lower_is_better=None, series=lines)]


def _heading(column: str) -> str:
    when, _, metric = column.partition("_")
    if when not in ("last", "best") or metric == "update":
        return column.replace("_", " ")
    return f"{when} {brief_metric(metric)}"
