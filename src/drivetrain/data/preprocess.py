"""From a source's images to what a model sees; one definition for host and device."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from drivetrain.data.reduction import sum_per_image
from drivetrain.data.source import DataSpec

UINT8_SCALE = 1 / 255
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
# In levels of 255; an image in which a single value differs by one level deviates far more.
_LEAST_DEVIATION = 1e-4


class Preparation(Protocol):
    """From stored samples to what model and task see; `height` and `width` are those of the model's input."""

    @property
    def spec(self) -> DataSpec: ...

    @property
    def channels(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def label_size(self) -> tuple[int, int]:
        """Height and width of the labels that a loss compares the model's output with."""
        ...

    def __call__(self, images: Tensor) -> Tensor:
        """Stored images, ready for the model."""
        ...

    def both(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Stored images and labels, ready for model and loss."""
        ...


@dataclass(frozen=True, slots=True)
class Preprocess:
    """To float32, then bilinear to `image_size`, then normalised as the data set asks.

    Only uint8 data are normalised: "unit" multiplies by 1/255, "standardise" brings each image to mean 0
    and deviation 1, "imagenet" takes away ImageNet's mean colour and divides by its deviation.
    """

    spec: DataSpec
    image_size: int | None = None

    @property
    def channels(self) -> int:
        return self.spec.channels

    @property
    def height(self) -> int:
        return self.image_size or self.spec.height

    @property
    def width(self) -> int:
        return self.image_size or self.spec.width

    @property
    def label_size(self) -> tuple[int, int]:
        return 1, 1

    def both(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Images ready for the model; a class per image needs no preparation."""
        return self(images), labels

    def __call__(self, images: Tensor) -> Tensor:
        """Images (samples, channels, height, width), channels last in memory, ready for the model."""
        pixels = self._resized(images)
        if self.spec.image_dtype != "uint8":
            return pixels
        if self.spec.normalisation == "standardise":
            return _standardised(pixels)
        if self.spec.normalisation == "imagenet":
            return _of_imagenet(pixels)
        return pixels.mul_(UINT8_SCALE) if pixels is not images else pixels * UINT8_SCALE

    def _resized(self, images: Tensor) -> Tensor:
        pixels = images.to(torch.float32)
        size = (self.height, self.width)
        if size == tuple(pixels.shape[2:]):
            return pixels
        return interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=False)


def channels_last_view(images: Tensor) -> Tensor:
    """(samples, height, width, channels) seen as (samples, channels, height, width), without a copy."""
    return images.permute(0, 3, 1, 2)


def _standardised(pixels: Tensor) -> Tensor:
    """Each image less its mean, divided by its deviation; an image of one value becomes 0."""
    values = pixels[0].numel()
    centred = pixels - (sum_per_image(pixels) / values)[:, None, None, None]
    deviation = (sum_per_image(centred * centred) / values).sqrt()
    scale = torch.where(deviation > _LEAST_DEVIATION, 1 / deviation, 0)
    return centred.mul_(scale[:, None, None, None])


def _of_imagenet(pixels: Tensor) -> Tensor:
    # Whole rows of pixels at a time: a constant of three values would make every inner loop three steps long.
    rows = pixels.permute(0, 2, 3, 1).flatten(2)
    offset, scale = _imagenet_row(pixels.shape[3], pixels.device)
    normalised = torch.addcmul(offset, rows, scale)
    return channels_last_view(normalised.view(*rows.shape[:2], -1, pixels.shape[1]))


@lru_cache(maxsize=8)
def _imagenet_row(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What to add to a row of pixels, and what to multiply it by before."""
    mean, deviation = (
        torch.tensor(values, dtype=torch.float64).repeat(width)
        for values in (_IMAGENET_MEAN, _IMAGENET_DEVIATION)
    )
    offset, scale = -mean / deviation, UINT8_SCALE / deviation
    return offset.to(device, torch.float32), scale.to(device, torch.float32)
