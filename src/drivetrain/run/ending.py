"""Why a training ends before its last update: a goal, no more progress, or no more time."""

import math
import re
from dataclasses import dataclass

from drivetrain.errors import BadInputError
from drivetrain.recipe.schema import Recipe

TIME_IS_UP_STATUS = 75
_TOP_CLASSES = 5
_LOWER_IS_BETTER = ("loss",)
_METRICS = {
    "classification": ("accuracy", "top5_accuracy", "loss"),
    "segmentation": ("dice", "hard_dice", "iou", "pixel_accuracy", "loss"),
}
_ALL_METRICS = tuple(dict.fromkeys(name for names in _METRICS.values() for name in names))
_UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A value of a validation metric that is good enough."""

    metric: str
    value: float

    def is_reached(self, metrics: dict[str, float]) -> bool:
        if self.metric not in metrics:
            return False
        if self.metric in _LOWER_IS_BETTER:
            return metrics[self.metric] <= self.value
        return metrics[self.metric] >= self.value


def parse_goal(text: str) -> Goal:
    """METRIC=VALUE, as --stop-at takes it."""
    metric, separator, number = text.partition("=")
    value = math.nan
    try:
        value = float(number)
    except ValueError:
        separator = ""
    is_possible = separator and math.isfinite(value) and value >= 0
    if metric.strip() not in _LOWER_IS_BETTER:
        is_possible = is_possible and value <= 1
    if not is_possible or metric.strip() not in _ALL_METRICS:
        raise BadInputError(
            f"--stop-at is {text}, it must be METRIC=VALUE with one of {', '.join(_ALL_METRICS)}; "
            "--stop-at accuracy=0.97 works for classes, --stop-at dice=0.9 for masks."
        )
    return Goal(metric=metric.strip(), value=value)


def check_goal(recipe: Recipe, *, task: str, num_classes: int) -> None:
    """Refuses a goal that these data can never reach."""
    if recipe.stop_at is None:
        return
    metric = parse_goal(recipe.stop_at).metric
    if metric not in _METRICS[task]:
        raise BadInputError(
            f"--stop-at {recipe.stop_at} is no metric of {task}, which has {', '.join(_METRICS[task])}; "
            f"--stop-at {_METRICS[task][0]}=0.9 works."
        )
    if metric == "top5_accuracy" and num_classes <= _TOP_CLASSES:
        raise BadInputError(
            f"--stop-at {recipe.stop_at} has no effect on {num_classes} classes, which have no top 5; "
            "--stop-at accuracy=0.97 works."
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
