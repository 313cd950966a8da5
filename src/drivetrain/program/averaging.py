"""Averaged weights: an exponential mean of weights and running statistics over the updates.

Early updates count more (the kept share starts near 0.1 and rises to the one asked for), so that the
average does not remember the initial weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class WeightAverage:
    """The average of some flat tensors, and how to look at a model through it."""

    def __init__(self, tensors: list[Tensor], *, kept_share: float) -> None:
        self.kept_share = kept_share
        self._tensors = tensors
        self.averages = [tensor.clone() for tensor in tensors]

    @torch.no_grad()
    def move(self, update: Tensor, *, wide_dtype: torch.dtype) -> None:
        """Takes the weights after an update into the average; nothing is fetched from the device."""
        count = update.to(wide_dtype)
        kept = torch.minimum((1.0 + count) / (10.0 + count), torch.full_like(count, self.kept_share))
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            average.lerp_(tensor, (1.0 - kept).to(average.dtype))

    @torch.no_grad()
    def adopt(self) -> None:
        """Gives the model the averaged weights for good, at the end of a training."""
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            tensor.copy_(average)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights inside the block, and its own again after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for average, tensor in zip(self.averages, self._tensors, strict=True):
            own = tensor.clone()
            tensor.copy_(average)
            average.copy_(own)
