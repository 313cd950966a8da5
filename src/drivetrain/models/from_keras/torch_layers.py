"""Torch modules for what Keras layers do and torch.nn has no module for."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "AsInput",
    "Called",
    "Combine",
    "Concatenate",
    "Crop",
    "DropPath",
    "GaussianDropout",
    "GaussianNoise",
    "GlobalPool",
    "PermuteAxes",
    "RescaleBy",
    "SamePadding",
    "Scale",
    "Unflatten",
    "add",
    "maximum",
    "mean",
    "minimum",
    "multiply",
    "subtract",
]


class AsInput(nn.Module):
    """The values of each image in the shape of a Keras model's input."""

    def __init__(self, shape: Sequence[int], *, is_last: bool) -> None:
        super().__init__()
        self.shape, self.is_last = tuple(shape), is_last

    def forward(self, images: Tensor) -> Tensor:
        ordered = images.movedim(1, -1) if self.is_last else images
        return torch.unflatten(ordered.flatten(1), 1, self.shape)


class SamePadding(nn.Module):
    """Pads so that a layer with these strides returns ceil(size / stride) values, as Keras's "same" does."""

    def __init__(
        self, kernel: Sequence[int], *, strides: Sequence[int], dilation: Sequence[int], mode: str
    ) -> None:
        super().__init__()
        self.kernel, self.strides, self.dilation = tuple(kernel), tuple(strides), tuple(dilation)
        self.mode = mode

    def forward(self, values: Tensor) -> Tensor:
        pads = self.pads(values.shape[2:])
        if not any(pads):
            return values
        return functional.pad(values, pads, mode=self.mode)

    def pads(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Before and after each dimension, the last one first, as torch's `pad` takes them."""
        pads: list[int] = []
        for size, kernel, stride, dilation in zip(
            sizes, self.kernel, self.strides, self.dilation, strict=True
        ):
            reach = (kernel - 1) * dilation + 1
            total = reach - 1 if stride == 1 else max(0, ((size - 1) // stride) * stride + reach - size)
            pads = [total // 2, total - total // 2, *pads]
        return tuple(pads)


class Crop(nn.Module):
    """Drops values before and after each dimension after the first two; a negative number adds zeros."""

    def __init__(self, crops: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.pads = tuple(-side for crop in reversed(list(crops)) for side in crop)

    def forward(self, values: Tensor) -> Tensor:
        return functional.pad(values, self.pads)


class GlobalPool(nn.Module):
    """The mean or the largest value over all positions of a channel."""

    def __init__(self, *, takes_largest: bool, keeps_dims: bool) -> None:
        super().__init__()
        self.takes_largest, self.keeps_dims = takes_largest, keeps_dims

    def forward(self, values: Tensor) -> Tensor:
        dims = tuple(range(2, values.dim()))
        if self.takes_largest:
            return values.amax(dims, keepdim=self.keeps_dims)
        return values.mean(dims, keepdim=self.keeps_dims)


def add(values: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, values)


def multiply(values: Sequence[Tensor]) -> Tensor:
    return reduce(torch.mul, values)


def maximum(values: Sequence[Tensor]) -> Tensor:
    return reduce(torch.maximum, values)


def minimum(values: Sequence[Tensor]) -> Tensor:
    return reduce(torch.minimum, values)


def mean(values: Sequence[Tensor]) -> Tensor:
    return add(values) / len(values)


def subtract(values: Sequence[Tensor]) -> Tensor:
    return values[0] - values[1]


class Combine(nn.Module):
    """Combines values of equal rank element by element."""

    def __init__(self, combine: Callable[[Sequence[Tensor]], Tensor]) -> None:
        super().__init__()
        self.combine = combine

    def forward(self, *values: Tensor) -> Tensor:
        return self.combine(values)


class Concatenate(nn.Module):
    """Values one after the other along one dimension."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *values: Tensor) -> Tensor:
        return torch.cat(values, self.dim)


class Unflatten(nn.Module):
    """The values of each sample in another shape."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, values: Tensor) -> Tensor:
        return torch.unflatten(values.flatten(1), 1, self.shape)


class PermuteAxes(nn.Module):
    """The axes in another order."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__()
        self.order = tuple(order)

    def forward(self, values: Tensor) -> Tensor:
        return values.permute(self.order)


class RescaleBy(nn.Module):
    """values * scale + offset; both are tensors along the last dimension, or numbers."""

    scale: Tensor
    offset: Tensor

    def __init__(self, scale: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("offset", offset)

    def forward(self, values: Tensor) -> Tensor:
        return values * self.scale + self.offset


class Scale(nn.Module):
    """Multiplies each channel, in the last dimension, by a learned weight."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, values: Tensor) -> Tensor:
        return values * self.weight


class DropPath(nn.Module):
    """Drops whole samples at a rate, and scales the others up."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return input
        shape = (input.shape[0], *(1 for _ in input.shape[1:]))
        kept = torch.rand(shape, dtype=input.dtype, device=input.device) >= self.drop_prob
        return input * kept.to(input.dtype) / (1 - self.drop_prob)


class GaussianNoise(nn.Module):
    """Adds normal noise in training."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation

    def forward(self, values: Tensor) -> Tensor:
        return values + torch.randn_like(values) * self.deviation if self.training else values


class GaussianDropout(nn.Module):
    """Multiplies by normal noise around 1 in training."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.deviation = (rate / (1 - rate)) ** 0.5

    def forward(self, values: Tensor) -> Tensor:
        return values * (1 + torch.randn_like(values) * self.deviation) if self.training else values


class Called(nn.Module):
    """A function of Keras or of the user; `is_moved` hands it the channels last, as Keras does."""

    def __init__(self, function: Callable[[Tensor], Any], *, is_moved: bool) -> None:
        super().__init__()
        self.function, self.is_moved = function, is_moved

    def forward(self, values: Tensor) -> Tensor:
        if not self.is_moved:
            made: Tensor = self.function(values)
            return made
        return torch.movedim(self.function(torch.movedim(values, 1, -1)), -1, 1)
