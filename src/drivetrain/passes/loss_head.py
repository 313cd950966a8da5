"""From a model's output to the number that is run backwards."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from drivetrain.data.feeds.feed import MicroBatch
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.task import Task

__all__ = ["LossHead", "LossParts"]


class LossParts(NamedTuple):
    """A micro-batch's part of the update's mean: scaled to run backwards, and as it is recorded."""

    scaled: Tensor
    loss: Tensor
    score: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossHead:
    """What follows after the last layer; `scale` is a factor on the device, in place of a fixed one."""

    task: Task
    loss_scaling: float = 0.0
    scale: Tensor | None = None

    def __call__(self, logits: Tensor, batch: MicroBatch, *, share: float | Tensor) -> LossParts:
        """`share` is what one sample counts in the mean over the global batch."""
        losses, scores = self._losses_and_scores(logits, batch)
        if batch.weights is not None:
            losses, scores = losses * batch.weights, scores * batch.weights
        loss = losses.sum() * share
        scaled = loss * self.loss_scaling if self.loss_scaling else loss
        if self.scale is not None:
            scaled = loss * self.scale
        return LossParts(scaled, loss.detach(), scores.sum() * share)

    def _losses_and_scores(self, logits: Tensor, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        if batch.mix is None or batch.partner_labels is None:
            return self.task.losses_and_scores(logits, batch.labels)
        assert isinstance(self.task, ClassificationTask), "only whole labels can be mixed"
        losses = self.task.mixed_losses(
            logits, batch.labels, partners=batch.partner_labels, own_share=batch.mix
        )
        return losses, self.task.correct(logits, batch.labels).to(losses.dtype)
