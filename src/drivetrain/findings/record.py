"""What findings look at: the record of a training, and the evaluation of a split."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.metrics import MAIN_METRICS
from drivetrain.catalogue.tasks import TaskName
from drivetrain.data.source import ImageDtype, Source
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.classification_measure import ClassificationEvaluation
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation
from drivetrain.tasks.task import Evaluation

__all__ = ["Measured", "TrainingRecord"]

# Single updates are noisy, so ends of curves are means: of the last tenth, and of the first ten updates at
# most, because a loss falls fastest there.
_PART = 10
_FIRST_UPDATES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """What a finished training has recorded.

    `columns` are those of updates.npz and `validations` the events of metrics.jsonl. `chosen` are the
    options that rules set for a user's own data. `duplicates` is the number of validation images that are in
    the training set too, with the first pair.
    """

    recipe: Recipe
    task: TaskName
    columns: Mapping[str, NDArray[np.float64]]
    validations: tuple[Mapping[str, Any], ...] = ()
    image_dtype: ImageDtype | None = "uint8"
    ended_by: str | None = None
    chosen: frozenset[str] = frozenset()
    duplicates: tuple[int, tuple[str, str]] | None = None

    @property
    def updates(self) -> int:
        """Number of weight updates."""
        return len(self.columns["loss"])

    @property
    def starts_trained(self) -> bool:
        """Whether the network started from trained weights."""
        return self.recipe.init_from is not None or self.recipe.pretrained is not False

    @property
    def metric(self) -> str:
        """The score that training and validation both record, between 0 and 1."""
        return MAIN_METRICS[self.task]

    def at_start(self, name: str) -> float:
        """The mean of a column over the first updates."""
        return _mean(self.columns[name][: max(1, min(_FIRST_UPDATES, self.updates // _PART))])

    def at_end(self, name: str, *, tenths_before: int = 0) -> float:
        """The mean of a column over its last tenth, or over a tenth before that."""
        length = max(1, self.updates // _PART)
        last = self.updates - tenths_before * length
        return _mean(self.columns[name][max(0, last - length) : last])

    def scores(self) -> list[tuple[int, float]]:
        """Update and score of every validation that has one."""
        found = ((event.get("update"), event.get(self.metric)) for event in self.validations)
        return [(update, value) for update, value in found if update is not None and value is not None]


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The evaluation of a split, with its samples."""

    evaluation: Evaluation
    source: Source
    class_names: tuple[str, ...]
    split: str = "validation"
    counts: NDArray[np.int64] = field(init=False)
    """Samples, or of masks pixels, by true (row) and predicted (column) class."""
    present: NDArray[np.int64] = field(init=False)
    """Samples that have each class."""

    def __post_init__(self) -> None:
        counts, present = _counted(self.evaluation, len(self.class_names))
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "present", present)


def _counted(evaluation: Evaluation, classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if isinstance(evaluation, ClassificationEvaluation):
        return evaluation.confusion, evaluation.confusion.sum(1)
    if isinstance(evaluation, SegmentationEvaluation):
        return evaluation.confusion, (evaluation.confusions.sum(2) > 0).sum(0)
    return np.zeros((classes, classes), dtype=np.int64), np.zeros(classes, dtype=np.int64)
