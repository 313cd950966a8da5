"""Results of a cross-validation: the validations of each fold, their mean and standard deviation."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivetrain.catalogue.metrics import MAIN_METRICS, direction, higher_is_better, shown_metric
from drivetrain.core.errors import RunFailedError
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics

__all__ = ["FoldResult", "Spread", "Statistics", "csv_text", "read_fold", "summarise"]

# Numbers of a validation event that say where in the training it took place; all others are metrics.
_POSITION = {"time", "elapsed_seconds", "epoch", "update", "samples", "validation_samples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult:
    """The validations of one fold in order of updates, as metrics by name.

    The last one may have more metrics than the others: slow metrics are computed only at the end.
    """

    fold: int
    updates: tuple[int, ...]
    evaluations: tuple[dict[str, float], ...]

    def best_index(self, metric: str) -> int:
        """The best evaluation; a tie keeps the earlier one."""
        return _best_index([evaluation[metric] for evaluation in self.evaluations], metric)

    def to_json(self, metric: str) -> dict[str, Any]:
        """All validations for crossval.json, with the last and the best one repeated."""
        best = self.best_index(metric)
        points = [
            {"update": update, **values}
            for update, values in zip(self.updates, self.evaluations, strict=True)
        ]
        return {"fold": self.fold, "last": points[-1], "best": points[best], "evaluations": points}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and sample standard deviation (n - 1) over the folds."""

    mean: float
    standard_deviation: float

    def to_json(self) -> dict[str, float]:
        return {"mean": self.mean, "standard_deviation": self.standard_deviation}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Means and deviations over the folds: at the last, at each fold's best, and at every validation."""

    metric: str
    metrics: tuple[str, ...]
    last: dict[str, Spread]
    best: dict[str, Spread]
    points: tuple[dict[str, Spread], ...]

    @property
    def best_point(self) -> int:
        """The evaluation point whose mean over the folds is best."""
        return _best_index([point[self.metric].mean for point in self.points], self.metric)

    @property
    def _metric_in_words(self) -> str:
        return f"{self.metric} ({shown_metric(self.metric)}, {direction(self.metric)})"

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "last": {"what": "over the folds, each at its last validation", **_plain(self.last)},
            "best": {
                "what": f"over the folds, each at its own best validation by {self._metric_in_words} "
                "(optimistic: the same samples choose the best validation and measure it)",
                **_plain(self.best),
            },
            "best_point": {
                "what": "over the folds at the one validation, counted from 0, whose mean "
                f"{self._metric_in_words} is best",
                "point": self.best_point,
                **_plain(self.points[self.best_point]),
            },
            "points": {
                "what": "over the folds at every validation that all of them reached",
                **{
                    name: {
                        "mean": [point[name].mean for point in self.points],
                        "standard_deviation": [point[name].standard_deviation for point in self.points],
                    }
                    for name in self.metrics
                },
            },
        }


def read_fold(directory: RunDirectory, *, fold: int) -> FoldResult:
    """Reads the validations of a finished fold from its run directory."""
    entries = [entry for entry in read_metrics(directory.metrics) if entry["event"] == "validation"]
    if not entries:
        raise RunFailedError(
            f"fold {fold} in {directory.path} was never validated; --overwrite starts afresh."
        )
    measured = [
        name for name in entries[-1] if all(_is_metric(name, entry) for entry in entries if name in entry)
    ]
    always = [name for name in measured if all(name in entry for entry in entries)]
    names = [always] * (len(entries) - 1) + [measured]
    return FoldResult(
        fold=fold,
        updates=tuple(int(entry["update"]) for entry in entries),
        evaluations=tuple(
            {name: float(entry[name]) for name in own} for own, entry in zip(names, entries, strict=True)
        ),
    )


def summarise(folds: Sequence[FoldResult], *, best_by: str | None = None) -> Statistics:
    """Means and deviations of all metrics that every fold has.

    `best_by` chooses the best validations if all folds have that metric.
    """
    names, last_names = (
        tuple(
            name
            for name in folds[0].evaluations[point]
            if all(name in fold.evaluations[point] for fold in folds)
        )
        for point in (0, -1)
    )
    metric = best_by if best_by in names else main_metric(names)
    shortest = min(len(fold.evaluations) for fold in folds)
    return Statistics(
        metric=metric,
        metrics=names,
        last=_spreads([fold.evaluations[-1] for fold in folds], last_names),
        best=_spreads([fold.evaluations[fold.best_index(metric)] for fold in folds], names),
        points=tuple(
            _spreads([fold.evaluations[point] for fold in folds], names) for point in range(shortest)
        ),
    )


def main_metric(names: Sequence[str]) -> str:
    """The metric that chooses the best validation without --best-by."""
    return next((name for name in MAIN_METRICS.values() if name in names), "loss")


def csv_text(folds: Sequence[FoldResult], statistics: Statistics) -> str:
    """A row per fold, then mean and deviation."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(table_rows(folds, statistics))
    return text.getvalue()


def table_rows(
    folds: Sequence[FoldResult], statistics: Statistics, *, shows: Callable[[str], bool] = lambda _: True
) -> list[list[Any]]:
    """The header, a row per fold, then mean and deviation, of the metrics that are to be shown."""
    names = tuple(filter(shows, statistics.metrics))
    last_names = tuple(filter(shows, statistics.last))
    header = ["fold", "update", *(f"last_{name}" for name in last_names)]
    rows: list[list[Any]] = [[*header, "best_update", *(f"best_{name}" for name in names)]]
    for fold in folds:
        last, best = fold.evaluations[-1], fold.best_index(statistics.metric)
        row = [fold.fold, fold.updates[-1], *(last[name] for name in last_names)]
        rows.append([*row, fold.updates[best], *(fold.evaluations[best][name] for name in names)])
    for word in ("mean", "standard_deviation"):
        last_values = [getattr(statistics.last[name], word) for name in last_names]
        best_values = [getattr(statistics.best[name], word) for name in names]
        rows.append([word, "", *last_values, "", *best_values])
    return rows


def _spreads(evaluations: Sequence[dict[str, float]], names: Sequence[str]) -> dict[str, Spread]:
    return {name: _spread([evaluation[name] for evaluation in evaluations]) for name in names}


def _spread(values: Sequence[float]) -> Spread:
    return Spread(mean=float(np.mean(values)), standard_deviation=float(np.std(values, ddof=1)))


def _plain(spreads: dict[str, Spread]) -> dict[str, Any]:
    return {name: spread.to_json() for name, spread in spreads.items()}


def _best_index(values: Sequence[float], metric: str) -> int:
    return int(np.argmax(values) if higher_is_better(metric) else np.argmin(values))


def _is_metric(name: str, entry: dict[str, Any]) -> bool:
    value = entry.get(name)
    if name in _POSITION or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)
