"""Steps of the networks that torch.nn has no module for; each is a leaf with a name of its own."""

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
    "PadToMultiple",
    "Shortcut",
    "UpConvRelu",
    "same_padding",
]


class Conv2dSame(nn.Conv2d):
    """A convolution whose output is ceil(size / stride): it pads what is missing, the odd one after."""

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        top, bottom = same_padding(height, kernel_size=self.kernel_size[0], stride=self.stride[0])
        left, right = same_padding(width, kernel_size=self.kernel_size[1], stride=self.stride[1])
        return super().forward(functional.pad(inputs, (left, right, top, bottom)))


def same_padding(size: int, *, kernel_size: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one dimension of `size`, so that it shrinks by the stride alone."""
    num_outputs = -(-size // stride)
    missing = max((num_outputs - 1) * stride + kernel_size - size, 0)
    return missing // 2, missing - missing // 2


class Add(nn.Module):
    """The sum of two branches."""

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        return branch + shortcut


class Shortcut(nn.Module):
    """A shortcut without weights: every second pixel, and zeros for the channels that are new."""

    def __init__(self, *, new_channels: int) -> None:
        super().__init__()
        self.new_channels = new_channels

    def forward(self, inputs: Tensor) -> Tensor:
        # Slices fill and copy a gradient for each dimension; a window of one pixel is one pass.
        every_second = functional.avg_pool2d(inputs, 1, stride=2)
        return functional.pad(every_second, (0, 0, 0, 0, 0, self.new_channels))

    def extra_repr(self) -> str:
        return f"new_channels={self.new_channels}"


class GlobalMean(nn.Module):
    """The mean of every channel over all pixels."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((2, 3))


# Steps of U-shaped networks that torch.nn has no module for; each is a leaf with a name of its own.


class ConvRelu(nn.Conv2d):
    """A convolution with its ReLU, in place: nobody else sees what the ReLU overwrites."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).relu_()


class UpConvRelu(nn.ConvTranspose2d):
    """A transposed convolution of stride 2 that doubles height and width, with its ReLU.

    A kernel larger than 2 reaches beyond that at the end alone; what stands out there is dropped.
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
    """The middle of an image, without `pixels` on each side, as a copy: the whole need not stay in memory."""

    def __init__(self, *, pixels: int) -> None:
        super().__init__()
        self.pixels = pixels

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        if min(height, width) <= 2 * self.pixels:
            raise BadInputError(
                f"Features of {height} x {width} pixels are too small to lose {self.pixels} on each side; "
                "a larger --image-size or --tile-size works."
            )
        # Padding by less than nothing copies, keeps the memory format, and costs one step backward.
        return functional.pad(inputs, (-self.pixels,) * 4)

    def extra_repr(self) -> str:
        return f"pixels={self.pixels}"


class Concatenate(nn.Module):
    """The channels of what comes from below, then those of the skip."""

    def forward(self, from_below: Tensor, skip: Tensor) -> Tensor:
        return torch.cat([from_below, skip], dim=1)


class PadToMultiple(nn.Module):
    """Repeats the border pixels until height and width are multiples of a number, on both sides alike."""

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
    """Takes away from padded features what `PadToMultiple` added to the images."""

    def forward(self, features: Tensor, images: Tensor) -> Tensor:
        top, bottom = _excess(features.shape[-2], images.shape[-2])
        left, right = _excess(features.shape[-1], images.shape[-1])
        if not top + bottom + left + right:
            return features
        return functional.pad(features, (-left, -right, -top, -bottom))


def _excess(size: int, wanted: int) -> tuple[int, int]:
    return (size - wanted) // 2, (size - wanted + 1) // 2
