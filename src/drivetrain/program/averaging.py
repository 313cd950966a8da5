"""Averaged weights: an exponential mean of weights and running statistics over the updates.

Early updates count more (the kept share starts near 0.1 and rises to the one asked for), so that the
average does not remember the initial weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from drivetrain.models.half_weights import widened


class WeightAverage:
    """The average of some flat tensors, and how to look at a model through it."""

    def __init__(self, tensors: list[Tensor], *, kept_share: float) -> None:
        self.kept_share = kept_share
        self._tensors = tensors
        # The small steps of an average would be lost in 16 bits.
        self.averages = [widened(tensor.clone()) for tensor in tensors]

    @torch.no_grad()
    def move(self, update: Tensor, *, wide_dtype: torch.dtype, skips: Tensor | None = None) -> None:
        """Takes the weights after an update into the average; nothing is fetched from the device.

        Where the flag `skips` is set the average stays as it is.
        """
        count = update.to(wide_dtype)
        kept = torch.minimum((1.0 + count) / (10.0 + count), torch.full_like(count, self.kept_share))
        taken = 1.0 - kept if skips is None else torch.where(skips, 0.0, 1.0 - kept)
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            average.lerp_(tensor.to(average.dtype), taken.to(average.dtype))

    @torch.no_grad()
    def adopt(self) -> None:
        """Gives the model the averaged weights, for good at the end of a training."""
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            tensor.copy_(average)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights inside the block, and its own again after it."""
        own = [tensor.clone() for tensor in self._tensors]
        self.adopt()
        try:
            yield
        finally:
            self._leave(own)

    @torch.no_grad()
    def _leave(self, own: list[Tensor]) -> None:
        """What was written into the model meanwhile is the average's; other numbers keep all their bits."""
        for average, tensor, before in zip(self.averages, self._tensors, own, strict=True):
            if average.dtype == tensor.dtype:
                average.copy_(tensor)
            else:
                is_same = tensor == average.to(tensor.dtype)
                average.copy_(torch.where(is_same, average, tensor.to(average.dtype)))
            tensor.copy_(before)
