"""The forward pass of a micro-batch from images to the loss, compiled or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.devices.compilation import Compilable
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.passes.forward import Forward
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.task import Task

__all__ = ["LossHead", "LossParts", "ModelStep", "Step"]


class LossParts(NamedTuple):
    """The share of a micro-batch in the mean loss: scaled for the backward pass, and as recorded."""

    scaled: Tensor
    loss: Tensor
    score: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossHead:
    """Computes the loss from logits; `scale` is a loss scale on the device that replaces a fixed one."""

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


class Step(Protocol):
    """Computes the share of a micro-batch in the loss."""

    def __call__(self, batch: MicroBatch, *, share: float) -> LossParts:
        """`share` is what one sample counts in the mean over the global batch."""
        ...


@dataclass(slots=True, kw_only=True)
class ModelStep:
    """The model and its loss head."""

    forward: Forward
    head: LossHead
    batch_norms: BatchNormOwner
    context: UpdateContext
    loss_dtype: torch.dtype = torch.float32
    compilable: Compilable[..., LossParts] = field(init=False)
    _constants: dict[tuple[float, tuple[int, ...]], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compilable = Compilable(self._run, what="the model", around=self._around)

    @contextmanager
    def _around(self) -> Iterator[None]:
        with self.batch_norms.reporting_from_nothing(), self.context.undone_where_failing():
            yield

    def __call__(self, batch: MicroBatch, *, share: float) -> LossParts:
        if not self.compilable.is_on:
            return self.head(self.forward(batch.images), batch, share=share)
        return self._run_compiled(batch, share=share)

    def _run_compiled(self, batch: MicroBatch, *, share: float) -> LossParts:
        """Passes what differs between updates as tensors: for numbers torch.compile would compile again."""
        device = batch.images.device
        weights = batch.weights
        if weights is None:
            weights = self._constant(1.0, shape=(len(batch.slots),), device=device)
        return self.compilable(
            batch.images,
            batch.labels,
            weights,
            batch.slots,
            batch.partner_labels,
            batch.mix,
            self._constant(share, shape=(), device=device),
        )

    def _constant(self, value: float, *, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """A cached constant tensor; few values occur, as most global batches have the same size."""
        if (value, shape) not in self._constants:
            self._constants[value, shape] = torch.full(shape, value, dtype=self.loss_dtype, device=device)
        return self._constants[value, shape]

    def _run(
        self,
        images: Tensor,
        labels: Tensor,
        weights: Tensor,
        slots: Tensor,
        partner_labels: Tensor | None,
        mix: Tensor | None,
        share: Tensor,
    ) -> LossParts:
        batch = MicroBatch(images, labels, weights, slots, partner_labels=partner_labels, mix=mix)
        return self.head(self.forward(images), batch, share=share)
