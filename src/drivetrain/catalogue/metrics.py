"""The validation metrics: their names in files and options, and how they are written for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drivetrain.catalogue.data_sets import background_class
from drivetrain.catalogue.tasks import TASKS, task_info

__all__ = [
    "MAIN_METRICS",
    "SCORES",
    "ClassScores",
    "base_metrics",
    "brief_metric",
    "class_scores",
    "could_be_metric",
    "direction",
    "foreground_first",
    "higher_is_better",
    "is_of_classes",
    "logged_name",
    "metrics_in_words",
    "metrics_of",
    "plain_metric",
    "shown_metric",
]

MAIN_METRICS: dict[str, str] = {info.name: info.main_metric for info in TASKS}
"""The metric that selects the best checkpoint unless --best-by names another."""

SCORES = {"soft_dice": "soft Dice", "hard_dice": "hard Dice", "iou": "IoU"}
"""The scores per class, named SCORE_CLASS in files; the first one is part of the training loss."""

_LOWER_IS_BETTER = ("loss",)
_FOREGROUND = "foreground_"
# Names of the means over all classes. The mean soft Dice is called `dice`, its name from before the other
# scores existed.
_MEANS = {"soft_dice": "dice", "hard_dice": "hard_dice", "iou": "iou"}
_TOP_CLASSES = 5
_TOP_METRIC = "top5_accuracy"
_PLAIN_WORDS = {
    _TOP_METRIC: "top-5 accuracy",
    "pixel_accuracy": "pixel accuracy",
    "v_rand": "V_Rand",
    "v_info": "V_Info",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScores:
    """One validation score: per class, foreground first, and the means over classes."""

    by_class: dict[str, float]
    foreground: float | None
    mean: float | None


def higher_is_better(metric: str) -> bool:
    """Whether a higher value of a metric is better."""
    return metric not in _LOWER_IS_BETTER


def direction(metric: str) -> str:
    """Which way a metric gets better, in words."""
    return "higher is better" if higher_is_better(metric) else "lower is better"


def plain_metric(name: str) -> str:
    """The name of a metric in files: `soft_dice` is `dice` there."""
    return _MEANS.get(name.strip(), name.strip())


def foreground_first(class_names: Sequence[str]) -> list[int]:
    """The class indices in display order: the background comes last."""
    background = background_class(class_names)
    return [*(index for index in range(len(class_names)) if index != background), background]


def base_metrics(task: str) -> tuple[str, ...]:
    """The metrics of a task that do not belong to one class."""
    return task_info(task).metrics


def metrics_of(task: str, class_names: Sequence[str]) -> list[str]:
    """Every metric that a validation on this data set computes, for --best-by and --stop-at."""
    has_top = len(class_names) > _TOP_CLASSES
    base = [name for name in base_metrics(task) if has_top or name != _TOP_METRIC]
    if not task_info(task).has_class_scores:
        return base
    names = [class_names[index] for index in foreground_first(class_names)]
    return [*base, *(f"{score}_{name}" for score in SCORES for name in names)]


def metrics_in_words(task: str, class_names: Sequence[str] | None = None) -> str:
    """The metrics of a task as a list for a sentence; class metrics are written as SCORE_CLASS."""
    every = base_metrics(task)
    base = metrics_of(task, class_names)[: len(every)] if class_names else list(every)
    if not task_info(task).has_class_scores:
        return ", ".join(base)
    named = ", ".join(f"{score}_CLASS" for score in SCORES)
    names = [] if class_names is None else [class_names[index] for index in foreground_first(class_names)]
    classes = f" (CLASS: {', '.join(names)})" if names else ""
    return f"{', '.join(base)}, {named}{classes}"


def could_be_metric(name: str, *, tasks: Sequence[str]) -> bool:
    """Whether a metric may exist in one of these tasks; class names are known only from the data."""
    has_class_scores = any(task_info(task).has_class_scores for task in tasks)
    of_class = has_class_scores and any(name.startswith(f"{score}_") for score in SCORES)
    return of_class or any(name in base_metrics(task) for task in tasks)


def shown_metric(metric: str) -> str:
    """The name of a metric for people, such as "soft Dice (mean over classes)"."""
    for score, words in SCORES.items():
        if metric == _MEANS[score]:
            return f"{words} (mean over classes)"
        if metric == f"{_FOREGROUND}{score}":
            return f"{words} (mean over foreground classes)"
        if metric.startswith(f"{score}_"):
            return f"{words} of {metric.removeprefix(f'{score}_')}"
    return _PLAIN_WORDS.get(metric, metric)


def brief_metric(metric: str) -> str:
    """A short name of a metric, for table columns and progress bars."""
    for score, words in SCORES.items():
        brief = {
            _MEANS[score]: f"{words} (class mean)",
            f"{_FOREGROUND}{score}": f"{words} (foreground mean)",
        }
        if metric in brief:
            return brief[metric]
    return shown_metric(metric)


def logged_name(metric: str) -> str:
    """The name of a metric's curve in TensorBoard and W&B, such as soft_dice_mean_over_classes."""
    for score, mean in _MEANS.items():
        if metric == mean:
            return f"{score}_mean_over_classes"
    return metric


def is_of_classes(metric: str) -> bool:
    """Whether a metric is the score of one class, or a mean over the foreground classes."""
    return any(metric.startswith((f"{score}_", f"{_FOREGROUND}{score}")) for score in SCORES)


def class_scores(metrics: Mapping[str, object]) -> dict[str, ClassScores]:
    """The scores per class of a validation, by their display names; empty for classification."""
    found = {words: _scores(metrics, score) for score, words in SCORES.items()}
    return {words: scores for words, scores in found.items() if scores.mean is not None}


def _scores(metrics: Mapping[str, object], score: str) -> ClassScores:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
    start = f"{score}_"
    return ClassScores(
        by_class={
            name.removeprefix(start): value for name, value in numbers.items() if name.startswith(start)
        },
        foreground=numbers.get(f"{_FOREGROUND}{score}"),
        mean=numbers.get(_MEANS[score]),
    )
