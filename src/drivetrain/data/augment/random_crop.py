"""Random crops of images: of the same size after padding with zeros, or resized."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import draw_per_sample
from drivetrain.data.preprocess import channels_last_view

_NARROWEST, _WIDEST = 3 / 4, 4 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedCrop:
    """Shifts every image by up to `padding` pixels in each direction; pixels from outside are 0."""

    padding: int = 4

    @property
    def columns(self) -> int:
        return 2

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws the crop's first row and column in the padded image, all equally likely."""
        places = 2 * self.padding + 1
        numbers = [
            draw_per_sample(seed, purpose, passes=passes, indices=indices)
            for purpose in ("crop top", "crop left")
        ]
        return np.floor(np.stack(numbers, axis=-1) * places)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Returns the cropped images, channels last."""
        # All possible windows are strided views of the padded batch, so that one gather crops all images.
        samples, channels, height, width = images.shape
        border = self.padding
        padded = images.new_zeros(samples, height + 2 * border, width + 2 * border, channels)
        padded[:, border : border + height, border : border + width] = images.permute(0, 2, 3, 1)
        sample, row, pixel, value = padded.stride()
        windows = padded.as_strided(
            (samples, 2 * border + 1, 2 * border + 1, height, width * channels),
            (sample, row, pixel, row, value),
        )
        top, left = draws.to(torch.int64).unbind(1)
        cropped = windows[torch.arange(samples, device=images.device), top, left]
        return channels_last_view(cropped.view(samples, height, width, channels))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizedCrop:
    """Cuts a box of at least `smallest_share` of each image and stretches it (bilinear) to the full size.

    `height` and `width` are those of the images that come in, `size` those that go out.
    """

    smallest_share: float
    height: int
    width: int
    size: tuple[int, int]

    @property
    def columns(self) -> int:
        return 4

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws first row, first column, height and width of each sample's box."""
        area, aspect, down, across = (
            draw_per_sample(seed, f"resized crop {purpose}", passes=passes, indices=indices)
            for purpose in ("area", "aspect", "top", "left")
        )
        heights, widths = self._box_sizes(area, aspect)
        top = np.floor(down * (self.height - heights + 1))
        left = np.floor(across * (self.width - widths + 1))
        return np.stack([top, left, heights, widths], axis=-1)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Returns the stretched boxes as float32, channels last."""
        top, left, heights, widths = draws.unbind(1)
        pixels = images.to(torch.float32).permute(0, 2, 3, 1)
        pixels = _stretch_rows(pixels, first=top, lengths=heights, size=self.size[0])
        pixels = _stretch_rows(pixels.transpose(1, 2), first=left, lengths=widths, size=self.size[1])
        return channels_last_view(pixels.transpose(1, 2).contiguous())

    def _box_sizes(
        self, area: NDArray[np.float64], aspect: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # The aspect ratio is drawn among those with which a box of this area fits, so no draw is rejected.
        share = self.smallest_share + (1 - self.smallest_share) * area
        narrowest_fit = share * self.width / self.height
        widest_fit = self.width / self.height / share
        low = np.log(np.clip(_NARROWEST, narrowest_fit, widest_fit))
        high = np.log(np.clip(_WIDEST, narrowest_fit, widest_fit))
        ratio = np.exp(low + (high - low) * aspect)
        pixels = share * self.height * self.width
        heights = np.clip(np.rint(np.sqrt(pixels / ratio)), 1, self.height)
        widths = np.clip(np.rint(np.sqrt(pixels * ratio)), 1, self.width)
        return heights, widths


def _stretch_rows(pixels: Tensor, *, first: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Resizes rows first..first+length-1 of each image to `size` rows: half-pixel centres, edges repeated."""
    samples, rows = pixels.shape[:2]
    centres = torch.arange(size, device=pixels.device, dtype=torch.float32) + 0.5
    places = centres * (lengths / size)[:, None] - 0.5
    places = torch.minimum(places.clamp(min=0), lengths[:, None] - 1)
    below = places.floor()
    share_above = (places - below)[:, :, None, None]
    above = torch.minimum(below + 1, lengths[:, None] - 1)
    start = (torch.arange(samples, device=pixels.device) * rows)[:, None] + first[:, None].to(torch.int64)
    flat = pixels.reshape(samples * rows, *pixels.shape[2:])
    low, high = (
        flat.index_select(0, (start + offset.to(torch.int64)).view(-1)).view(samples, size, *pixels.shape[2:])
        for offset in (below, above)
    )
    return torch.lerp(low, high, share_above)
