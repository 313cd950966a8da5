"""From a source's images to what a model sees; one definition for host and device."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from drivetrain.data.source import DataSpec

UINT8_SCALE = 1 / 255


@dataclass(frozen=True, slots=True)
class Preprocess:
    """To float32, then bilinear to `image_size`, then times 1/255 where the data are uint8."""

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

    def __call__(self, images: Tensor) -> Tensor:
        """Images (samples, channels, height, width), channels last in memory, ready for the model."""
        pixels = self._resized(images)
        if self.spec.image_dtype != "uint8":
            return pixels
        return pixels.mul_(UINT8_SCALE) if pixels is not images else pixels * UINT8_SCALE

    def _resized(self, images: Tensor) -> Tensor:
        pixels = images.to(torch.float32)
        size = (self.height, self.width)
        if size == (self.spec.height, self.spec.width):
            return pixels
        return interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=False)


def channels_last_view(images: Tensor) -> Tensor:
    """(samples, height, width, channels) seen as (samples, channels, height, width), without a copy."""
    return images.permute(0, 3, 1, 2)
