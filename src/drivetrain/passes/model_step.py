"""A micro-batch from its images to its loss, as it is written or as one compiled function."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.devices.compilation import Compilable
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.passes.forward import Forward
from drivetrain.passes.loss_head import LossHead, LossParts

__all__ = ["ModelStep", "Step"]


class Step(Protocol):
    """From a micro-batch to its part of the loss."""

    def __call__(self, batch: MicroBatch, *, share: float) -> LossParts:
        """`share` is what one sample counts in the mean over the global batch."""
        ...


@dataclass(slots=True, kw_only=True)
class ModelStep:
    """The model and what follows after its last layer."""

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
        """With everything in a tensor that differs between updates: for numbers it would compile anew."""
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
        """Made once: few global batches differ in their number of samples."""
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
