"""Metrics of a classifier over a set of samples: loss, accuracies and the confusion matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.tasks.classification import ClassificationTask

_TOP = 5
_Sums = tuple[Tensor, Tensor, Tensor]
_Singles = tuple[Tensor, Tensor, Tensor, Tensor]
_State = tuple[_Sums, list[_Singles]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """The true class, the predicted class, its probability and the loss of each sample, in order."""

    labels: NDArray[np.int32]
    classes: NDArray[np.int32]
    confidences: NDArray[np.float32]
    losses: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationEvaluation:
    """Metrics over a set of samples; `confusion` counts them by true (row) and predicted (column) class."""

    loss: float
    top5_accuracy: float | None
    confusion: NDArray[np.int64]
    guesses: Guesses | None = None

    @property
    def samples(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        return int(np.trace(self.confusion)) / self.samples

    @property
    def class_accuracies(self) -> list[float | None]:
        """Accuracy among the samples of each class; None for a class without samples."""
        totals = self.confusion.sum(1).tolist()
        right = np.diagonal(self.confusion).tolist()
        return [hits / total if total else None for hits, total in zip(right, totals, strict=True)]

    def as_metrics(self) -> dict[str, float]:
        """The numbers of a validation event."""
        metrics = {"loss": self.loss, "accuracy": self.accuracy}
        if self.top5_accuracy is not None:
            metrics["top5_accuracy"] = self.top5_accuracy
        return {**metrics, "validation_samples": self.samples}

    def of_classes(self) -> dict[str, Any]:
        """The accuracy of each class, in the order of the classes."""
        return {"class_accuracies": self.class_accuracies}


class ClassificationMeasure:
    """Accumulates metrics over batches; the sums stay on the device until the end."""

    def __init__(self, task: ClassificationTask, *, num_classes: int, wide_dtype: torch.dtype) -> None:
        self._task = task
        self._num_classes = num_classes
        self._wide_dtype = wide_dtype
        self._sums: _Sums | None = None
        self._singles: list[_Singles] = []

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch."""
        losses = self._task.losses(logits, labels)
        self._singles.append(_single_samples(self._task.probabilities(logits), labels, losses))
        loss = losses.to(self._wide_dtype).sum()
        self._add((loss, _count_in_top(logits, labels), _confusion(logits, labels, self._num_classes)))

    def state(self) -> _State | None:
        """The sums so far, on the CPU; None before the first batch."""
        if self._sums is None:
            return None
        loss, in_top, confusion = self._sums
        return (loss.cpu(), in_top.cpu(), confusion.cpu()), [self._all_singles()]

    def take(self, states: Sequence[_State | None]) -> None:
        """Replaces the sums by those of several processes, in rank order."""
        self._sums, self._singles = None, []
        for state in states:
            if state is not None:
                self._add(state[0])
                self._singles += state[1]

    def _add(self, parts: _Sums) -> None:
        before = self._sums
        self._sums = (
            parts if before is None else (before[0] + parts[0], before[1] + parts[1], before[2] + parts[2])
        )

    def result(self) -> ClassificationEvaluation:
        """The metrics over all batches."""
        assert self._sums is not None, "an evaluation needs at least one sample"
        loss, in_top, confusion = self._sums
        counts = confusion.view(self._num_classes, self._num_classes).cpu().numpy()
        samples = int(counts.sum())
        return ClassificationEvaluation(
            loss=loss.item() / samples,
            top5_accuracy=in_top.item() / samples if self._num_classes > _TOP else None,
            confusion=counts,
            guesses=self._guesses(),
        )

    def _guesses(self) -> Guesses:
        labels, classes, confidences, losses = (part.numpy() for part in self._all_singles())
        return Guesses(labels=labels, classes=classes, confidences=confidences, losses=losses)

    def _all_singles(self) -> _Singles:
        """The values of single samples over all batches, on the CPU."""
        labels, classes, confidences, losses = (
            torch.cat([batch[part] for batch in self._singles]).cpu() for part in range(4)
        )
        return labels, classes, confidences, losses


def _single_samples(probabilities: Tensor, labels: Tensor, losses: Tensor) -> _Singles:
    confidences, classes = probabilities.max(1)
    return (
        labels.to(torch.int32),
        classes.to(torch.int32),
        confidences.to(torch.float32),
        losses.to(torch.float32),
    )


def _count_in_top(logits: Tensor, labels: Tensor) -> Tensor:
    best = logits.topk(min(_TOP, logits.shape[1]), dim=1).indices
    return (best == labels.unsqueeze(1)).sum()


def _confusion(logits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    return torch.bincount(labels * num_classes + logits.argmax(1), minlength=num_classes**2)
