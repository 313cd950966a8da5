"""Averaged weights: an exponential moving average of weights and running statistics over the updates.

The decay starts near 0.1 and rises to the one asked for, so that the average soon forgets the initial
weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from drivetrain.models.half_weights import widened


class WeightAverage:
    """The moving average of some flat tensors, which can stand in for the weights of a model."""

    def __init__(self, tensors: list[Tensor], *, kept_share: float) -> None:
        self.kept_share = kept_share
        self._tensors = tensors
        # In 16 bits the small steps of an average would be rounded away.
        self.averages = [widened(tensor.clone()) for tensor in tensors]

    @torch.no_grad()
    def move(self, update: Tensor, *, wide_dtype: torch.dtype, skips: Tensor | None = None) -> None:
        """Adds the weights after an update to the average, without synchronising the device.

        If the flag `skips` is set, the average does not change.
        """
        count = update.to(wide_dtype)
        kept = torch.minimum((1.0 + count) / (10.0 + count), torch.full_like(count, self.kept_share))
        taken = 1.0 - kept if skips is None else torch.where(skips, 0.0, 1.0 - kept)
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            average.lerp_(tensor.to(average.dtype), taken.to(average.dtype))

    @torch.no_grad()
    def adopt(self) -> None:
        """Copies the averaged weights into the model."""
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            tensor.copy_(average)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the averaged weights into the model for the duration of the block."""
        own = [tensor.clone() for tensor in self._tensors]
        self.adopt()
        try:
            yield
        finally:
            self._leave(own)

    @torch.no_grad()
    def _leave(self, own: list[Tensor]) -> None:
        """Restores the weights; changes made to the model inside the block go to the average.

        Values that did not change keep the precision of the average, which a 16-bit model would lose.
        """
        for average, tensor, before in zip(self.averages, self._tensors, own, strict=True):
            if average.dtype == tensor.dtype:
                average.copy_(tensor)
            else:
                is_same = tensor == average.to(tensor.dtype)
                average.copy_(torch.where(is_same, average, tensor.to(average.dtype)))
            tensor.copy_(before)
