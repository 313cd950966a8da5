"""Runs a model of one input size on images of any size: overlapping tiles, mirrored borders, blended seams.

All classes here map normalised images (samples, channels, height, width) to logits (samples, classes, height,
width) in float32, so that they can be nested.
"""

from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from drivetrain.data.training_tiles import mirrored_places
from drivetrain.passes.forward import Forward
from drivetrain.recipe.params import FlipDirection

__all__ = ["DEFAULT_OVERLAP", "FlipAveraged", "ResizedForward", "ScaledForward", "TileAxis", "TiledForward"]

# Distances between tiles are multiples of up to 32 = 2**5: usual models halve the image up to five times, so
# the pooling windows of two tiles coincide where the tiles overlap.
_WIDEST_STEP = 32
# More overlap gives smoother seams but computes more pixels twice.
DEFAULT_OVERLAP = 0.25
_AXES: tuple[tuple[int, FlipDirection], ...] = ((3, "horizontal"), (2, "vertical"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TileAxis:
    """The positions and blending weights of tiles of `side` pixels along an axis of `length` pixels.

    Tiles are spread evenly from border to border. An image shorter than a tile is centred in it and mirrored
    at its borders. A longer image is mirrored at its end until all distances are multiples of a power of two.
    """

    length: int
    side: int
    overlap: float

    @property
    def extent(self) -> int:
        """The length of the image including mirrored pixels."""
        return self.side + self._steps * self.step

    @property
    def before(self) -> int:
        """The number of mirrored pixels before the image."""
        return max(0, self.side - self.length) // 2

    @property
    def starts(self) -> list[int]:
        """The first pixel of each tile in the extent."""
        strides = -(-self._steps // (self.longest_stride // self.step))
        return [self._steps * place // max(strides, 1) * self.step for place in range(strides + 1)]

    @property
    def longest_stride(self) -> int:
        """The largest allowed distance between the starts of two tiles; independent of the image's length."""
        return max(1, int(self.side * (1 - self.overlap)))

    @property
    def step(self) -> int:
        """The power of two that divides all starts; independent of the image's length."""
        return min(_WIDEST_STEP, 1 << (self.longest_stride.bit_length() - 1))

    @property
    def _steps(self) -> int:
        """The distance from the first to the last tile, in steps."""
        return -(-max(0, self.length - self.side) // self.step)

    def places(self, *, margin: int) -> NDArray[np.int64]:
        """For each pixel of the extent and of `margin` pixels around it, the image pixel to show there."""
        return mirrored_places(-self.before - margin, self.extent - self.before + margin, length=self.length)

    def weights(self) -> NDArray[np.float32]:
        """The blending weight of each tile (row) at each of its pixels (column).

        All weights are above 0, and the weights of overlapping tiles add up to 1 at every pixel.
        """
        starts = np.array(self.starts)
        window = _window(self.side, ramp=self.side - int(np.diff(starts).max(initial=0)))
        places = starts[:, None] + np.arange(self.side)
        total = np.bincount(places.ravel(), weights=np.tile(window, len(starts)))
        return (window / total[places]).astype(np.float32)


def _window(side: int, *, ramp: int) -> NDArray[np.float64]:
    """A window of 1 in the middle that falls smoothly towards both ends over `ramp` pixels, never to 0."""
    if ramp == 0:
        return np.ones(side)
    rising = np.sin(np.pi / 2 * np.minimum((np.arange(side) + 0.5) / ramp, 1)) ** 2
    falling: NDArray[np.float64] = rising * rising[::-1]
    return falling


@dataclass(frozen=True, slots=True)
class TiledForward:
    """Runs a model on tiles of an image and blends the logits.

    Each tile is shown with `margin` more pixels on every side, by which the output of an unpadded model is
    smaller. Beyond its borders the image is mirrored, or 0 if the model was trained so (`border`); an image
    smaller than a tile is always mirrored up to its size. Tiles run in batches of `batch`.
    """

    forward: Forward
    _: KW_ONLY
    tile: tuple[int, int] | int
    margin: int
    batch: int
    overlap: float = DEFAULT_OVERLAP
    border: Literal["mirror", "zero"] = "mirror"

    def __call__(self, images: Tensor) -> Tensor:
        """The logits of whole images; for a single tile they are bit-identical to those of `forward`."""
        sides = (self.tile, self.tile) if isinstance(self.tile, int) else self.tile
        rows, columns = (
            TileAxis(length=length, side=side, overlap=self.overlap)
            for length, side in zip(images.shape[2:], sides, strict=True)
        )
        canvas = self._canvas(images, rows, columns)
        is_one_tile = len(rows.starts) == len(columns.starts) == 1
        logits = self._in_batches(canvas) if is_one_tile else self._blended(canvas, rows, columns)
        return _cropped(logits, rows, columns)

    def _canvas(self, images: Tensor, rows: TileAxis, columns: TileAxis) -> Tensor:
        """The images with all mirrored or zero pixels that the tiles need around them."""
        mirrored = self.margin if self.border == "mirror" else 0
        for dim, axis in ((2, rows), (3, columns)):
            if axis.extent + 2 * mirrored != axis.length:
                places = torch.from_numpy(axis.places(margin=mirrored)).to(images.device)
                images = images.index_select(dim, places)
        zeros = self.margin - mirrored
        padded = F.pad(images, (zeros,) * 4) if zeros else images
        return padded.contiguous(memory_format=torch.channels_last)

    def _in_batches(self, canvas: Tensor) -> Tensor:
        return torch.cat([self.forward(part).float() for part in torch.split(canvas, self.batch)])

    def _blended(self, canvas: Tensor, rows: TileAxis, columns: TileAxis) -> Tensor:
        down, across = (torch.from_numpy(axis.weights()).to(canvas.device) for axis in (rows, columns))
        tiles = list(product(range(len(canvas)), enumerate(rows.starts), enumerate(columns.starts)))
        height, width = rows.side + 2 * self.margin, columns.side + 2 * self.margin
        blended: Tensor | None = None
        for first in range(0, len(tiles), self.batch):
            batch = tiles[first : first + self.batch]
            cut = [canvas[i, :, top : top + height, left : left + width] for i, (_, top), (_, left) in batch]
            logits = self.forward(torch.stack(cut).contiguous(memory_format=torch.channels_last)).float()
            if blended is None:
                blended = logits.new_zeros(len(canvas), logits.shape[1], rows.extent, columns.extent)
            for (i, (row, top), (column, left)), tile in zip(batch, logits, strict=True):
                window = down[row][:, None] * across[column]
                blended[i, :, top : top + rows.side, left : left + columns.side].addcmul_(tile, window)
        assert blended is not None, "there is at least one tile"
        return blended


@dataclass(frozen=True, slots=True)
class FlipAveraged:
    """The mean of the logits over an image and its mirror images, each flipped back where it has pixels."""

    forward: Forward
    directions: tuple[FlipDirection, ...] = ("horizontal", "vertical")
    _: KW_ONLY
    has_pixels: bool = True

    def __call__(self, images: Tensor) -> Tensor:
        """The mean logits."""
        logits = [self._upright(self.forward(images.flip(axes)).float(), axes) for axes in self._axes()]
        return torch.stack(logits).mean(0)

    def _upright(self, logits: Tensor, axes: tuple[int, ...]) -> Tensor:
        return logits.flip(axes) if self.has_pixels else logits

    def _axes(self) -> list[tuple[int, ...]]:
        """The axes to flip for each image of the mean; none for the image itself."""
        across, down = ((axis,) if name in self.directions else () for axis, name in _AXES)
        return list(dict.fromkeys(((), across, down, down + across)))


@dataclass(frozen=True, slots=True)
class ResizedForward:
    """Scales whole images to `size` x `size`, pads them with `margin` zeros, and scales the logits back."""

    forward: Forward
    _: KW_ONLY
    size: int
    margin: int

    def __call__(self, images: Tensor) -> Tensor:
        """The logits of images of any one size, in that size."""
        scaled = F.pad(_resized(images, (self.size, self.size)), (self.margin,) * 4)
        logits = self.forward(scaled.contiguous(memory_format=torch.channels_last)).float()
        return _resized(logits, (images.shape[2], images.shape[3]))


@dataclass(frozen=True, slots=True)
class ScaledForward:
    """Scales images by `factors` (height, width) for a `forward` of any size, and scales the logits back."""

    forward: Forward
    _: KW_ONLY
    factors: tuple[float, float]

    def __call__(self, images: Tensor) -> Tensor:
        """The logits of images of any one size, in that size."""
        height, width = images.shape[2:]
        down, across = self.factors
        scaled = _resized(images, (max(1, round(height * down)), max(1, round(width * across))))
        return _resized(self.forward(scaled), (height, width))


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(images.shape[2:]) == size:
        return images
    return F.interpolate(images, size=size, mode="bilinear", align_corners=False, antialias=False)


def _cropped(logits: Tensor, rows: TileAxis, columns: TileAxis) -> Tensor:
    below = logits[:, :, rows.before : rows.before + rows.length]
    return below[:, :, :, columns.before : columns.before + columns.length]
