"""Why a training ends before its last update: a goal, no more progress, or no more time."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.catalogue.metrics import (
    MAIN_METRICS,
    base_metrics,
    could_be_metric,
    higher_is_better,
    metrics_in_words,
    metrics_of,
    plain_metric,
)
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe

TIME_IS_UP_STATUS = 75
_UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A value of a validation metric that is good enough."""

    metric: str
    value: float

    def is_reached(self, metrics: dict[str, float]) -> bool:
        if self.metric not in metrics:
            return False
        value = metrics[self.metric]
        return value >= self.value if higher_is_better(self.metric) else value <= self.value


def parse_goal(text: str) -> Goal:
    """METRIC=VALUE, as --stop-at takes it."""
    metric, separator, number = text.rpartition("=")
    metric, value = plain_metric(metric), math.nan
    try:
        value = float(number)
    except ValueError:
        separator = ""
    is_possible = separator and math.isfinite(value) and value >= 0
    if higher_is_better(metric):
        is_possible = is_possible and value <= 1
    if not is_possible or not could_be_metric(metric, tasks=tuple(MAIN_METRICS)):
        names = list(dict.fromkeys(name for task in MAIN_METRICS for name in base_metrics(task)))
        raise BadInputError(
            f"--stop-at is {text}, it must be METRIC=VALUE with one of {', '.join(names)}; "
            "--stop-at accuracy=0.97 works for classes, --stop-at dice=0.9 for masks."
        )
    return Goal(metric=metric, value=value)


def check_best_by(recipe: Recipe, *, tasks: Sequence[str]) -> None:
    """Refuses a metric that data of none of these tasks have."""
    if recipe.best_by is None or could_be_metric(recipe.best_by, tasks=tasks):
        return
    there = "; ".join(f"{task} has {metrics_in_words(task)}" for task in tasks)
    raise BadInputError(
        f"--best-by {recipe.best_by} is no metric of a validation: {there}; "
        f"--best-by {MAIN_METRICS[tasks[0]]} works."
    )


def check_metrics(recipe: Recipe, *, task: str, class_names: Sequence[str]) -> None:
    """Refuses a metric in --stop-at or --best-by that these data do not have."""
    if recipe.stop_at is not None:
        metric = parse_goal(recipe.stop_at).metric
        example = f"{MAIN_METRICS[task]}=0.9"
        _require_metric("--stop-at", recipe.stop_at, metric, example, task=task, class_names=class_names)
    if recipe.best_by is not None:
        example = MAIN_METRICS[task]
        _require_metric(
            "--best-by", recipe.best_by, recipe.best_by, example, task=task, class_names=class_names
        )


def _require_metric(
    option: str, given: str, metric: str, example: str, *, task: str, class_names: Sequence[str]
) -> None:
    if metric in metrics_of(task, class_names):
        return
    if metric in base_metrics(task):
        raise BadInputError(
            f"{option} {given} has no effect on {len(class_names)} classes, which have no top 5; "
            f"{option} {example} works."
        )
    raise BadInputError(
        f"{option} {given} is no metric of {task} here, which has {metrics_in_words(task, class_names)}; "
        f"{option} {example} works."
    )


def parse_duration_s(text: str) -> float:
    """Seconds of 90, 90s, 30m, 2h, 1.5h or 1d, as --max-time takes them."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)\s*", text.lower())
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise BadInputError(f"--max-time is {text}, it must be a duration above 0; --max-time 2h works.")
    return seconds


@dataclass(slots=True, kw_only=True)
class EarlyEnd:
    """Watches the validations; `reason` says why the training ended, once it did."""

    goal: Goal | None = None
    patience: int | None = None
    without_progress: int = 0
    reason: str | None = None

    def see(self, metrics: dict[str, float], *, improved: bool) -> None:
        """Takes the newest validation into account."""
        self.without_progress = 0 if improved else self.without_progress + 1
        if self.goal is not None and self.goal.is_reached(metrics):
            self.reason = f"--stop-at {self.goal.metric}={self.goal.value:g}"
        elif self.patience is not None and self.without_progress >= self.patience:
            self.reason = f"--patience {self.patience}"


def ended_by_options(recipe: Recipe) -> list[str]:
    """The reasons that would end this recipe's training early."""
    reasons = []
    if recipe.stop_at is not None:
        goal = parse_goal(recipe.stop_at)
        reasons.append(f"--stop-at {goal.metric}={goal.value:g}")
    if recipe.patience is not None:
        reasons.append(f"--patience {recipe.patience}")
    return reasons


def early_end_of(recipe: Recipe, *, without_progress: int) -> EarlyEnd:
    """What a recipe asks for, continued after so many validations without a better one."""
    goal = None if recipe.stop_at is None else parse_goal(recipe.stop_at)
    return EarlyEnd(goal=goal, patience=recipe.patience, without_progress=without_progress)
