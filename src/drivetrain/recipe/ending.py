"""Early stopping: --stop-at, --patience and --max-time, and the metrics that --best-by accepts."""

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

# EX_TEMPFAIL of sysexits.h, "try again later": neither success (0) nor a failure (1).
TIME_IS_UP_STATUS = 75
_UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A validation metric and the value at which training stops."""

    metric: str
    value: float

    def is_reached(self, metrics: dict[str, float]) -> bool:
        if self.metric not in metrics:
            return False
        value = metrics[self.metric]
        return value >= self.value if higher_is_better(self.metric) else value <= self.value


def parse_goal(text: str) -> Goal:
    """Parses METRIC=VALUE, the argument of --stop-at."""
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
            "--stop-at accuracy=0.97 works for classification, --stop-at dice=0.9 for segmentation."
        )
    return Goal(metric=metric, value=value)


def check_best_by(recipe: Recipe, *, tasks: Sequence[str]) -> None:
    """Refuses a --best-by metric that none of these tasks has."""
    if recipe.best_by is None or could_be_metric(recipe.best_by, tasks=tasks):
        return
    there = "; ".join(f"{task} has {metrics_in_words(task)}" for task in tasks)
    raise BadInputError(
        f"--best-by {recipe.best_by} is not a validation metric: {there}; "
        f"--best-by {MAIN_METRICS[tasks[0]]} works."
    )


def check_metrics(recipe: Recipe, *, task: str, class_names: Sequence[str]) -> None:
    """Refuses a metric in --stop-at or --best-by that does not exist for this data set."""
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
            f"{option} {given} needs more than 5 classes, and there are {len(class_names)}; "
            f"{option} {example} works."
        )
    raise BadInputError(
        f"{option} {given} is not a metric of this {task}, which has {metrics_in_words(task, class_names)}; "
        f"{option} {example} works."
    )


def parse_duration_s(text: str) -> float:
    """Parses a duration such as 90, 90s, 30m, 1.5h or 1d, the argument of --max-time, into seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)\s*", text.lower())
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise BadInputError(f"--max-time is {text}, it must be a duration above 0; --max-time 2h works.")
    return seconds


@dataclass(slots=True, kw_only=True)
class EarlyEnd:
    """Decides on early stopping after each validation; `reason` is set once training should stop."""

    goal: Goal | None = None
    patience: int | None = None
    without_progress: int = 0
    reason: str | None = None

    def see(self, metrics: dict[str, float], *, improved: bool) -> None:
        """Takes in the metrics of the newest validation."""
        self.without_progress = 0 if improved else self.without_progress + 1
        if self.goal is not None and self.goal.is_reached(metrics):
            self.reason = f"--stop-at {self.goal.metric}={self.goal.value:g}"
        elif self.patience is not None and self.without_progress >= self.patience:
            self.reason = f"--patience {self.patience}"


def ended_by_options(recipe: Recipe) -> list[str]:
    """The options of a recipe that could end its training early."""
    reasons = []
    if recipe.stop_at is not None:
        goal = parse_goal(recipe.stop_at)
        reasons.append(f"--stop-at {goal.metric}={goal.value:g}")
    if recipe.patience is not None:
        reasons.append(f"--patience {recipe.patience}")
    return reasons


def early_end_of(recipe: Recipe, *, without_progress: int) -> EarlyEnd:
    """The early stopping of a recipe; a continued run passes its validations without improvement so far."""
    goal = None if recipe.stop_at is None else parse_goal(recipe.stop_at)
    return EarlyEnd(goal=goal, patience=recipe.patience, without_progress=without_progress)
