"""Steps of U-shaped networks that torch.nn has no module for; each is a leaf with a name of its own."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.catalogue.sizes import missing_to_multiple
from drivetrain.core.errors import BadInputError

__all__ = ["CentralCrop", "Concatenate", "ConvRelu", "CropLike", "PadToMultiple", "UpConvRelu"]


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
