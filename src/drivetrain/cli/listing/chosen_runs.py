"""Which runs `drivetrain runs` lists, and in which order: --where, --sort, and the best of those alike."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drivetrain.catalogue.metrics import higher_is_better, plain_metric
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_names, shown
from drivetrain.recipe.fields import written_value
from drivetrain.recipe.schema import Recipe
from drivetrain.store.listing import Listed, best_metrics, describe_run, is_fold, recipe_values

__all__ = ["ListedRun", "best_of_each_kind", "chosen_runs", "known_name", "listed_run", "name_of_condition"]

# Short names of columns, as the table and people call them.
_OTHER_NAMES = {
    "name": "run",
    "updates": "update",
    "time": "elapsed_seconds",
    "seconds": "elapsed_seconds",
    "images/s": "images_per_second",
    "speed": "images_per_second",
    "best": "best_validation",
}
_NOT_SORTED = ("by_class",)
_CONDITION = re.compile(r"\s*([^=!<>\s]+)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*")
_NUMERIC: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run with its row of the table, the best values of its metrics, and the options of its recipe."""

    run: Listed
    row: Mapping[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    is_fold: bool = False

    def value(self, name: str) -> Any:
        """A column, else a metric, else an option."""
        if name in self.row:
            return self.row[name]
        return self.metrics[name] if name in self.metrics else self.recipe.get(name)


def listed_run(run: Listed) -> ListedRun:
    """Everything that the table may show of a run."""
    return ListedRun(
        run=run,
        row=describe_run(run),
        metrics=best_metrics(run),
        recipe=recipe_values(run),
        is_fold=is_fold(run),
    )


def known_name(name: str, runs: Sequence[ListedRun], *, option: str) -> str:
    """The column, metric or option of the recipe that a person calls `name`."""
    plain = name.strip().removeprefix("--").replace("-", "_")
    names = [*_columns(runs), *_metrics(runs), *Recipe.model_fields]
    for candidate in (_OTHER_NAMES.get(plain.lower(), plain), plain_metric(plain)):
        if candidate in names:
            return candidate
    near = nearest_names(plain, [*_OTHER_NAMES, *names])
    raise BadInputError(
        f"{option}: {shown(name)} is no column, metric or option of these runs.{near} "
        f"Columns: {', '.join(_columns(runs))}."
    )


def chosen_runs(
    runs: Sequence[ListedRun], *, where: Iterable[str] = (), sort: str | None = None, reverse: bool = False
) -> list[ListedRun]:
    """The runs that meet all conditions; sorted by a metric the best first, runs without a value last."""
    kept = list(runs)
    for condition in where:
        meets = _condition(condition, runs)
        kept = [run for run in kept if meets(run)]
    if sort is None:
        return kept[::-1] if reverse else kept
    name = known_name(sort, runs, option=f"--sort {sort}")
    valued = [run for run in kept if run.value(name) is not None]
    missing = [run for run in kept if run.value(name) is None]
    return [*sorted(valued, key=_order(name, valued), reverse=_descends(name, valued) != reverse), *missing]


def best_of_each_kind(runs: Sequence[ListedRun], *, metric: str | None = None) -> set[int]:
    """The places of the best runs among those with the same data set, by `metric` or their own one.

    Folds are left out: each is validated on samples of its own. So are runs without another to compare with.
    """
    groups: dict[tuple[Any, str], list[tuple[float, int]]] = {}
    for place, run in enumerate(runs):
        name = metric or run.row["metric"]
        value = run.metrics.get(metric) if metric else run.row["best_validation"]
        if name is not None and value is not None and not run.is_fold:
            groups.setdefault((run.row["dataset"], str(name)), []).append((value, place))
    return {_best(values, name) for (_, name), values in groups.items() if len(values) > 1}


def _best(values: Sequence[tuple[float, int]], metric: str) -> int:
    choose = max if higher_is_better(metric.removeprefix("mean ")) else min
    return choose(values, key=lambda entry: entry[0])[1]


def _columns(runs: Sequence[ListedRun]) -> list[str]:
    return [name for name in (runs[0].row if runs else ()) if name not in _NOT_SORTED]


def _metrics(runs: Sequence[ListedRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


def _descends(name: str, runs: Sequence[ListedRun]) -> bool:
    """Whether the best, and so the first, is the largest value."""
    if name in ("validation", "best_validation"):
        return all(higher_is_better(str(run.row["metric"]).removeprefix("mean ")) for run in runs)
    return any(name in run.metrics for run in runs) and higher_is_better(name)


def _order(name: str, runs: Sequence[ListedRun]) -> Callable[[ListedRun], Any]:
    """Numbers by their size, anything else as it is written."""
    if all(_number(run.value(name)) is not None for run in runs):
        return lambda run: _number(run.value(name))
    return lambda run: _written(run.value(name))


def _condition(text: str, runs: Sequence[ListedRun]) -> Callable[[ListedRun], bool]:
    name, sign, wanted = _parts(text, runs)
    if sign in ("=", "!="):
        return lambda run: _equals(run.value(name), wanted) == (sign == "=")
    return _comparison(name, sign, wanted, runs=runs, text=text)


def name_of_condition(text: str, runs: Sequence[ListedRun]) -> str:
    """The column, metric or option that a condition is about."""
    return _parts(text, runs)[0]


def _parts(text: str, runs: Sequence[ListedRun]) -> tuple[str, str, str]:
    """Name, sign and value of a condition."""
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise BadInputError(
            f"--where {shown(text)} is no condition; try --where model=unet or --where 'accuracy>0.9'."
        )
    return known_name(parts[1], runs, option=f"--where {text}"), parts[2], parts[3]


def _comparison(
    name: str, sign: str, wanted: str, *, runs: Sequence[ListedRun], text: str
) -> Callable[[ListedRun], bool]:
    limit = _number(wanted)
    other = next((run.value(name) for run in runs if _is_no_number(run.value(name))), None)
    if limit is None or other is not None:
        what = wanted if limit is None else _written(other)
        raise BadInputError(
            f"--where {shown(text)}: {sign} compares numbers, and {shown(what)} is none; try --where "
            f"{name}={shown(what)}."
        )

    def meets(run: ListedRun) -> bool:
        value = _number(run.value(name))
        return value is not None and _NUMERIC[sign](value, limit)

    return meets


def _equals(value: Any, wanted: str) -> bool:
    number, limit = _number(value), _number(wanted)
    if number is not None and limit is not None:
        return number == limit
    return _written(value).lower() == wanted.lower()


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _is_no_number(value: Any) -> bool:
    return value is not None and _number(value) is None


def _written(value: Any) -> str:
    """A value as the command line writes it."""
    return written_value(tuple(value) if isinstance(value, list) else value)
