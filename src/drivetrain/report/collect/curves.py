"""The charts of a run: loss, metrics, learning rate and throughput over the updates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.catalogue.metrics import (
    MAIN_METRICS,
    SCORES,
    class_scores,
    higher_is_better,
    is_of_classes,
    plain_metric,
    shown_metric,
)
from drivetrain.report.collect.series import series_of, series_of_events
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import Curve, Series

__all__ = ["NOT_METRICS", "curves_of", "drawn_first", "speed_unit"]

NOT_METRICS = frozenset(
    {"event", "time", "update", "elapsed_seconds", "epoch", "samples", "validation_samples"}
)
"""What a validation event holds beside its metrics."""

_RATE, _SPEED = "learning_rate", "images_per_second"
_NOT_DRAWN = NOT_METRICS | {"compile_seconds"}
_TITLES = {
    _RATE: "learning rate",
    "loss_scale": "loss scale",
    "skipped_updates": "skipped updates since the last log",
}
# Of more classes only those that end lowest are drawn.
_MOST_CLASSES = 8
_MOST_CLASS_POINTS = 500


def curves_of(run: StoredRun, *, max_points: int | None) -> list[Curve]:
    """The charts for which there is at least one point."""
    trainings, validations = run.trainings, run.validations
    names = drawn_first([*run.history, *_names(validations), *_names(trainings)])
    own = [name for name in names if not is_of_classes(name)]
    return [
        _curve(name, lines, unit=speed_unit(run) if name == _SPEED else "")
        for name in own
        if (lines := _lines(name, run, trainings, validations, max_points))
    ]


def drawn_first(names: Iterable[str]) -> list[str]:
    """Each quantity once: loss, the main metric, other metrics, then learning rate and speed."""
    first = ["loss", *MAIN_METRICS.values()]
    last = [_RATE, _SPEED, "loss_scale", "skipped_updates"]
    known = list(dict.fromkeys(names))
    middle = [name for name in known if name not in first and name not in last]
    return [name for name in (*first, *middle, *last) if name in known]


def speed_unit(run: StoredRun) -> str:
    """What the throughput counts, such as images/s."""
    kind = run.data.get("input_kind", "image")
    return f"{plural_of(kind)}/s"


def _names(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The quantities of the first and the last events, which have all that there are."""
    few = [*events[:2], *events[-2:]]
    return [name for event in few for name in event if name not in _NOT_DRAWN and _is_drawn(event[name])]


def _is_drawn(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _curve(name: str, lines: list[Series], *, unit: str) -> Curve:
    is_metric = name not in (_SPEED, *_TITLES)
    title = "throughput" if name == _SPEED else _TITLES.get(name, shown_metric(name))
    if any(name == plain_metric(score) for score in SCORES):
        title = title.removesuffix(" (mean over classes)")
    lower = not higher_is_better(name) if is_metric else None
    return Curve(id=name, title=title, unit=unit, lower_is_better=lower, series=lines)


def _lines(
    name: str,
    run: StoredRun,
    trainings: list[dict[str, Any]],
    validations: list[dict[str, Any]],
    max_points: int | None,
) -> list[Series]:
    lines: list[Series | None] = []
    recorded = run.history.get(name, np.zeros(0))
    if len(recorded):
        updates = range(1, len(recorded) + 1)
        lines.append(series_of("training, each update", recorded, updates=updates, max_points=max_points))
    logged = [event for event in trainings if name in event]
    if not _repeat(logged, len(recorded), has_means=name not in _TITLES):
        words = _log_words(name, has_each=len(recorded) > 0)
        lines.append(series_of_events(words, logged, name, max_points=max_points))
    lines.append(series_of_events("validation", validations, name, max_points=max_points))
    lines += _class_lines(name, validations, max_points=max_points)
    return [line for line in lines if line is not None]


def _repeat(logged: Sequence[Mapping[str, Any]], recorded: int, *, has_means: bool) -> bool:
    """Whether logs only repeat the record of each update, which ends at the last checkpoint of a run."""
    if not logged:
        return True
    newest = int(logged[-1]["update"])
    return newest <= recorded and (len(logged) >= newest or not has_means)


def _log_words(name: str, *, has_each: bool) -> str:
    if name in (_SPEED, _RATE, *_TITLES):
        return "training, logs"
    return "training, mean since the last log" if has_each else "training"


def _class_lines(name: str, validations: list[dict[str, Any]], *, max_points: int | None) -> list[Series]:
    """The scores of single classes, drawn with their mean; of many classes those that end lowest."""
    score = next((score for score in SCORES if plain_metric(score) == name), None)
    if score is None or not validations:
        return []
    last = class_scores(validations[-1]).get(SCORES[score])
    if last is None:
        return []
    most = None if max_points is None else min(max_points, _MOST_CLASS_POINTS)
    lowest = sorted(last.by_class, key=lambda each: last.by_class[each])[:_MOST_CLASSES]
    shown = [each for each in last.by_class if each in lowest]
    few = " (among the lowest)" if len(shown) < len(last.by_class) else ""
    found = [
        series_of_events(f"validation, {each}{few}", validations, f"{score}_{each}", max_points=most)
        for each in shown
    ]
    return [line for line in found if line is not None]
