"""Measuring a model: every sample counts once, whatever the batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.data.feed import MicroBatch
from drivetrain.tasks.classification import ClassificationTask

_TOP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Means over a set of samples; `confusion` counts them by true (row) and predicted (column) class."""

    loss: float
    top5_accuracy: float | None
    confusion: NDArray[np.int64]

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


@torch.inference_mode()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[MicroBatch],
    *,
    task: ClassificationTask,
    num_classes: int,
    wide_dtype: torch.dtype,
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """Loss, accuracies and confusion over all batches; sums stay on the device until the end."""
    model.eval()
    sums: tuple[Tensor, Tensor, Tensor] | None = None
    samples = 0
    for batch in batches:
        logits = model(batch.images)
        loss = task.losses(logits, batch.labels).to(wide_dtype).sum()
        parts = (loss, _count_in_top(logits, batch.labels), _confusion(logits, batch.labels, num_classes))
        sums = parts if sums is None else (sums[0] + parts[0], sums[1] + parts[1], sums[2] + parts[2])
        samples += len(batch.labels)
        if on_batch is not None:
            on_batch(samples)
    assert sums is not None, "an evaluation needs at least one sample"
    return Evaluation(
        loss=sums[0].item() / samples,
        top5_accuracy=sums[1].item() / samples if num_classes > _TOP else None,
        confusion=sums[2].view(num_classes, num_classes).cpu().numpy(),
    )


def _count_in_top(logits: Tensor, labels: Tensor) -> Tensor:
    best = logits.topk(min(_TOP, logits.shape[1]), dim=1).indices
    return (best == labels.unsqueeze(1)).sum()


def _confusion(logits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    return torch.bincount(labels * num_classes + logits.argmax(1), minlength=num_classes**2)
