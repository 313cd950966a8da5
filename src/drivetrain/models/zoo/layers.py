"""Layers that torch.nn does not have; each is a leaf module, so it has a name and can be a stage boundary."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.catalogue.models import missing_to_multiple
from drivetrain.core.errors import BadInputError

__all__ = [
    "Add",
    "CentralCrop",
    "Concatenate",
    "Conv2dSame",
    "ConvRelu",
    "CropLike",
    "GlobalMean",
    "MaxPoolSame",
    "PadToMultiple",
    "Shortcut",
    "UpConvRelu",
    "same_padding",
]


class Conv2dSame(nn.Conv2d):
    """A convolution with "same" padding as in TensorFlow: the output has ceil(size / stride) pixels.

    If the padding is odd, the extra pixel is added at the end.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        top, bottom = same_padding(height, kernel_size=self.kernel_size[0], stride=self.stride[0])
        left, right = same_padding(width, kernel_size=self.kernel_size[1], stride=self.stride[1])
        return super().forward(functional.pad(inputs, (left, right, top, bottom)))


def same_padding(size: int, *, kernel_size: int, stride: int) -> tuple[int, int]:
    """The numbers of zeros before and after a dimension of `size`, so that only the stride shrinks it."""
    num_outputs = -(-size // stride)
    missing = max((num_outputs - 1) * stride + kernel_size - size, 0)
    return missing // 2, missing - missing // 2


class MaxPoolSame(nn.Module):
    """Max pooling of 3x3 with stride 2 and "same" padding as in TensorFlow, which ignores what is outside."""

    def forward(self, inputs: Tensor) -> Tensor:
        # If the size is even, only the last window lacks a pixel, which `ceil_mode` allows.
        padding = (inputs.shape[-2] % 2, inputs.shape[-1] % 2)
        return functional.max_pool2d(inputs, 3, stride=2, padding=padding, ceil_mode=True)


class Add(nn.Module):
    """The sum of two branches."""

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        return branch + shortcut


class Shortcut(nn.Module):
    """A shortcut without weights: takes every second pixel, and fills new channels with zeros."""

    def __init__(self, *, new_channels: int) -> None:
        super().__init__()
        self.new_channels = new_channels

    def forward(self, inputs: Tensor) -> Tensor:
        # Not slices: their backward pass fills and copies a gradient per dimension. Average pooling with a
        # window of one pixel takes one pass.
        every_second = functional.avg_pool2d(inputs, 1, stride=2)
        return functional.pad(every_second, (0, 0, 0, 0, 0, self.new_channels))

    def extra_repr(self) -> str:
        return f"new_channels={self.new_channels}"


class GlobalMean(nn.Module):
    """Global average pooling: the mean of each channel over all pixels."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((2, 3))


class ConvRelu(nn.Conv2d):
    """A convolution followed by an in-place ReLU, which is safe because nothing else reads the output."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).relu_()


class UpConvRelu(nn.ConvTranspose2d):
    """A transposed convolution of stride 2 that doubles height and width, followed by a ReLU.

    A kernel larger than 2 produces extra pixels at the end, which are cropped.
    """

    def __init__(self, width: int, new_width: int, *, kernel_size: int) -> None:
        super().__init__(width, new_width, kernel_size, stride=2)

    def forward(self, inputs: Tensor, output_size: Any = None) -> Tensor:
        doubled = super().forward(inputs, output_size)
        excess = self.kernel_size[0] - 2
        if excess:
            doubled = functional.pad(doubled, (0, -excess, 0, -excess))
        return doubled.relu_()


class CentralCrop(nn.Module):
    """Crops `pixels` from each side. The result is a copy, so the whole input need not stay in memory."""

    def __init__(self, *, pixels: int) -> None:
        super().__init__()
        self.pixels = pixels

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        if min(height, width) <= 2 * self.pixels:
            raise BadInputError(
                f"Features of {height} x {width} pixels are too small to crop {self.pixels} on each side; "
                "a larger --image-size or --tile-size works."
            )
        # Negative padding copies, keeps the memory format, and has a backward pass of one step.
        return functional.pad(inputs, (-self.pixels,) * 4)

    def extra_repr(self) -> str:
        return f"pixels={self.pixels}"


class Concatenate(nn.Module):
    """Concatenates the channels of several branches."""

    def forward(self, *branches: Tensor) -> Tensor:
        return torch.cat(branches, dim=1)


class PadToMultiple(nn.Module):
    """Repeats the border pixels, evenly on both sides, until height and width are multiples of `multiple`."""

    def __init__(self, *, multiple: int) -> None:
        super().__init__()
        self.multiple = multiple

    def forward(self, images: Tensor) -> Tensor:
        top, bottom = missing_to_multiple(images.shape[-2], multiple=self.multiple)
        left, right = missing_to_multiple(images.shape[-1], multiple=self.multiple)
        if not top + bottom + left + right:
            return images
        return functional.pad(images, (left, right, top, bottom), mode="replicate")

    def extra_repr(self) -> str:
        return f"multiple={self.multiple}"


class CropLike(nn.Module):
    """Removes from padded features what `PadToMultiple` added to the images."""

    def forward(self, features: Tensor, images: Tensor) -> Tensor:
        top, bottom = _excess(features.shape[-2], images.shape[-2])
        left, right = _excess(features.shape[-1], images.shape[-1])
        if not top + bottom + left + right:
            return features
        return functional.pad(features, (-left, -right, -top, -bottom))


def _excess(size: int, wanted: int) -> tuple[int, int]:
    return (size - wanted) // 2, (size - wanted + 1) // 2
