"""Measuring a model: every sample counts once, whatever the batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from drivetrain.data.feed import MicroBatch
from drivetrain.tasks.classification import ClassificationTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Means over a set of samples."""

    loss: float
    accuracy: float
    samples: int

    def as_metrics(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy, "validation_samples": self.samples}


@torch.inference_mode()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[MicroBatch],
    *,
    task: ClassificationTask,
    wide_dtype: torch.dtype,
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """Loss and accuracy of a model over all batches; sums stay on the device until the end."""
    model.eval()
    sums: Tensor | None = None
    samples = 0
    for batch in batches:
        logits = model(batch.images)
        parts = torch.stack(
            [
                task.losses(logits, batch.labels).to(wide_dtype).sum(),
                task.correct(logits, batch.labels).to(wide_dtype).sum(),
            ]
        )
        sums = parts if sums is None else sums + parts
        samples += len(batch.labels)
        if on_batch is not None:
            on_batch(samples)
    assert sums is not None, "an evaluation needs at least one sample"
    loss, correct = sums.tolist()
    return Evaluation(loss=loss / samples, accuracy=correct / samples, samples=samples)
