"""Measuring a model: every sample counts once, whatever the batches."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from drivetrain.data.feeds.feed import MicroBatch
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.tasks.task import Evaluation, Measure


@torch.inference_mode()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[MicroBatch],
    *,
    measure: Measure,
    group: ReplicaGroup = ALONE,
    forward: Callable[[Tensor], Tensor],
    counts: bool = True,
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """What `measure` makes of all batches, those of the other ranks in `group` included.

    `forward` is the way the model takes over images; where its output comes out on another rank, this one
    goes along and does not count.
    """
    model.eval()
    samples = 0
    for batch in batches:
        logits = forward(batch.images)
        if counts:
            measure.add(logits, batch.labels)
        samples += len(batch.labels)
        if on_batch is not None:
            on_batch(samples)
    if group.size > 1:
        measure.take(group.gather(measure.state()))
    return measure.result()
