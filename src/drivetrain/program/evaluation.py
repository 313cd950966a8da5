"""Measuring a model: every sample counts once, whatever the batches."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from drivetrain.data.feed import MicroBatch
from drivetrain.tasks.task import Evaluation, Measure


@torch.inference_mode()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[MicroBatch],
    *,
    measure: Measure,
    forward: Callable[[Tensor], Tensor],
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """What `measure` makes of all batches; `forward` is the way the model takes over images."""
    model.eval()
    samples = 0
    for batch in batches:
        measure.add(forward(batch.images), batch.labels)
        samples += len(batch.labels)
        if on_batch is not None:
            on_batch(samples)
    return measure.result()
