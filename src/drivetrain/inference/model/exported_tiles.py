"""The computation of `tiles.py` as a graph that can be exported: without loops and branches on sizes.

All tiles run through the model as one batch, so memory use grows with the image. Sizes are known only when
the graph runs. torch.export takes a dimension that is 1 for a constant, and a number of tiles may be 1.
Therefore no tensor has the number of tiles as a dimension: pixels are kept in one flat list, and index
tensors say where each pixel comes from.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from drivetrain.inference.model.tiles import TileAxis
from drivetrain.passes.forward import Forward

__all__ = ["GraphScaled", "GraphTiles"]


@dataclass(frozen=True, slots=True)
class _GraphAxis:
    """`TileAxis` for a length that is known only when the graph runs; the overlap must be above 0."""

    length: int
    _: KW_ONLY
    side: int
    overlap: float

    @property
    def _fixed(self) -> TileAxis:
        """The values that do not depend on the length."""
        return TileAxis(length=self.side, side=self.side, overlap=self.overlap)

    @property
    def _steps(self) -> int:
        step = self._fixed.step
        return (_larger(self.length - self.side, 0) + step - 1) // step

    @property
    def _strides(self) -> int:
        per_stride = self._fixed.longest_stride // self._fixed.step
        return (self._steps + per_stride - 1) // per_stride

    @property
    def tiles(self) -> int:
        return self._strides + 1

    @property
    def extent(self) -> int:
        return self.side + self._steps * self._fixed.step

    @property
    def before(self) -> int:
        return _larger(self.side - self.length, 0) // 2

    def start_of(self, tile: Tensor) -> Tensor:
        """The first pixel of tiles in the extent."""
        return tile * self._steps // _larger(self._strides, 1) * self._fixed.step

    def pixel_at(self, place: Tensor) -> Tensor:
        """The image pixel shown at positions in the extent or beyond, where the image is mirrored."""
        mirrored = _remainder(place - self.before, 2 * self.length)
        return torch.minimum(mirrored, 2 * self.length - 1 - mirrored)

    def is_inside(self, place: Tensor) -> Tensor:
        return (place >= 0) & (place < self.extent)

    def weights(self) -> Tensor:
        """The blending weight of each tile at each of its pixels, one tile after the other."""
        tile, place = _unravel(torch.arange(self.tiles * self.side), self.side)
        window = self._window()[place]
        target = self.start_of(tile) + place
        total = torch.zeros(self.extent, dtype=torch.float64).index_add(0, target, window)
        return (window / total[target]).float()

    def _window(self) -> Tensor:
        strides = _larger(self._strides, 1)
        widest_stride = (self._steps + strides - 1) // strides * self._fixed.step
        share = (torch.arange(self.side, dtype=torch.float64) + 0.5) / (self.side - widest_stride)
        rising = torch.sin(torch.pi / 2 * share.clamp(max=1)) ** 2
        return rising * rising.flip(0)


@dataclass(frozen=True, slots=True)
class GraphTiles:
    """`TiledForward` as a graph. `has_zeros` returns, for an image size, whether its margin is zeros."""

    forward: Forward
    _: KW_ONLY
    tile: tuple[int, int]
    margin: int
    overlap: float
    has_zeros: Callable[[int, int], Tensor] | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """The logits of images of any one size, in that size."""
        batch, _, height, width = images.shape
        rows = _GraphAxis(height, side=self.tile[0], overlap=self.overlap)
        columns = _GraphAxis(width, side=self.tile[1], overlap=self.overlap)
        tiles = self._tiles(images, rows, columns)
        blended = self._blended(self.forward(tiles).float(), rows, columns, batch=batch)
        image, row, column = _unravel(torch.arange(batch * height * width), height, width)
        inside = _ravel(image, row + rows.before, column + columns.before, rows.extent, columns.extent)
        return blended[inside].view(batch, height, width, -1).permute(0, 3, 1, 2)

    def _tiles(self, images: Tensor, rows: _GraphAxis, columns: _GraphAxis) -> Tensor:
        """All tiles of all images with their margins as one batch, image by image and row by row."""
        batch, channels, height, width = images.shape
        seen = (self.tile[0] + 2 * self.margin, self.tile[1] + 2 * self.margin)
        count = batch * rows.tiles * columns.tiles
        index = torch.arange(count * seen[0] * seen[1])
        image, down, across, y, x = _unravel(index, rows.tiles, columns.tiles, *seen)
        y, x = rows.start_of(down) + y - self.margin, columns.start_of(across) + x - self.margin
        lines = images.permute(0, 2, 3, 1).reshape(-1, channels)
        pixels = lines[_ravel(image, rows.pixel_at(y), columns.pixel_at(x), height, width)]
        if self.margin and self.has_zeros is not None:
            is_kept = (rows.is_inside(y) & columns.is_inside(x)) | ~self.has_zeros(height, width)
            pixels = pixels * is_kept[:, None]
        return pixels.view(count, *seen, channels).permute(0, 3, 1, 2)

    def _blended(self, logits: Tensor, rows: _GraphAxis, columns: _GraphAxis, *, batch: int) -> Tensor:
        """The blended logits of all pixels of the extents, one row per pixel."""
        lines = logits.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
        lines = lines.view(-1, logits.shape[1])
        index = torch.arange(batch * rows.tiles * columns.tiles * self.tile[0] * self.tile[1])
        image, down, across, y, x = _unravel(index, rows.tiles, columns.tiles, *self.tile)
        counts = rows.weights()[down * self.tile[0] + y] * columns.weights()[across * self.tile[1] + x]
        y, x = rows.start_of(down) + y, columns.start_of(across) + x
        target = _ravel(image, y, x, rows.extent, columns.extent)
        blended = torch.zeros(batch * rows.extent * columns.extent, logits.shape[1])
        return blended.index_add(0, target, lines * counts[:, None])


def _larger(one: int, other: int) -> int:
    """The larger of two sizes that are known only when the graph runs."""
    larger: int = torch.sym_max(one, other)  # type: ignore[no-untyped-call]
    return larger


def _unravel(index: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """The coordinates of a flat index: along a first axis of any size, then along axes of `sizes`."""
    places = []
    for size in reversed(sizes):
        places.append(_remainder(index, size))
        index = index // size
    return (index, *reversed(places))


def _remainder(index: Tensor, size: int) -> Tensor:
    # torch.onnx (torch 2.13) cannot translate a remainder by a size that is known only at run time.
    return index - index // size * size


def _ravel(image: Tensor, row: Tensor, column: Tensor, height: int, width: int) -> Tensor:
    return (image * height + row) * width + column


@dataclass(frozen=True, slots=True)
class GraphScaled:
    """Scales images for a `forward` of any size and scales the logits back, as a graph.

    Images become a square of `side` or, with `of`, are scaled by the factors `side` / `of` (height, width).
    """

    forward: Forward
    _: KW_ONLY
    side: int
    of: tuple[int, int] | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """The logits of images of any one size, in that size."""
        height, width = images.shape[2:]
        size = (self.side, self.side)
        if self.of is not None:
            size = (self._scaled(height, self.of[0]), self._scaled(width, self.of[1]))
        scaled = interpolate(images, size=size, mode="bilinear", align_corners=False)
        return interpolate(self.forward(scaled), size=(height, width), mode="bilinear", align_corners=False)

    def _scaled(self, length: int, of: int) -> int:
        return _larger((2 * length * self.side + of) // (2 * of), 1)
