"""Lays out the cells and membranes of a generated electron micrograph, and draws its noise."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_uniform, draw_words, stream_key

__all__ = ["Cells", "Picture", "draw_noise", "draw_numbers", "lay_out_cells", "smooth_noise", "white_noise"]

Picture = NDArray[np.float32]
_DRAWS_PER_WORD = 2
_BYTES_PER_DRAW = 4
# The sum of four independent bytes: its mean, and the deviation that four uniform variances add up to.
_BYTES_MEAN = _BYTES_PER_DRAW * 127.5
_BYTES_DEVIATION = (_BYTES_PER_DRAW * (256**2 - 1) / 12) ** 0.5
# Knots beyond the picture: a cubic spline needs four knots around every pixel along each axis.
_EXTRA_KNOTS = 4
# Side in pixels of the squares that each hold the centre of one cell.
_SPACING = 20.0
_REACH = 2
_SQUARES_OUTSIDE = 4
# Side of the blocks in which pixels look for their cell: small blocks have few candidates, large ones fewer
# numpy calls.
_BLOCK = 32
_JITTER = 0.9
# In spacings: how far a cell can push its borders into its neighbours. The power makes most pushes weak, so
# that sizes differ strongly.
_STRONGEST_PUSH = 1.9
_PUSH_POWER = 5
_WARPS = ((26.0, 5.0), (9.0, 1.3))
_HALF_WIDTH, _HALF_WIDTH_VARIATION, _WIDTH_GRAIN = 1.45, 0.2, 12.0
_NARROWEST, _WIDEST = 1.0, 3.5
_KNOT_GRAIN, _KNOT_LEVEL, _KNOT_WIDTH = 24.0, 1.25, 3.0


def draw_noise(key: int, *, count: int) -> Picture:
    """Draws `count` roughly Gaussian numbers of mean 0 and deviation 1; a hashed word gives two of them."""
    words = draw_words(key, np.arange(-(-count // _DRAWS_PER_WORD), dtype=np.int64))
    parts = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _BYTES_PER_DRAW)
    sums = parts.sum(axis=1, dtype=np.int32)[:count].astype(np.float32)
    noise: Picture = (sums - np.float32(_BYTES_MEAN)) / np.float32(_BYTES_DEVIATION)
    return noise


def draw_numbers(key: int, *, count: int) -> Picture:
    """Draws `count` uniform numbers in [0, 1)."""
    return draw_uniform(key, np.arange(count, dtype=np.int64)).astype(np.float32)


def white_noise(key: int, *, size: int) -> Picture:
    """A square picture of independent pixels, mean 0 and deviation 1."""
    return draw_noise(key, count=size * size).reshape(size, size)


def smooth_noise(key: int, *, size: int, grain: float) -> Picture:
    """A square picture of soft blobs about `grain` pixels across, mean 0 and deviation about 1."""
    weights = _spline_weights(size, grain)
    knots = weights.shape[1]
    lattice = draw_noise(key, count=knots * knots).reshape(knots, knots)
    return np.asarray(weights @ lattice @ weights.T, dtype=np.float32)


@lru_cache(maxsize=32)
def _spline_weights(size: int, grain: float) -> Picture:
    """Weights of the knots of a cubic spline for each pixel (pixels, knots)."""
    knots = int(np.ceil(size / grain)) + _EXTRA_KNOTS
    positions = np.arange(size)[:, np.newaxis] / grain + 1.5
    distance = np.abs(positions - np.arange(knots))
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    weights = np.where(distance < 1, near, far)
    mean_square: float = (weights**2).sum(axis=1).mean()
    return np.asarray(weights / np.sqrt(mean_square), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Cells:
    """Each pixel's cell, its distance to the border with the next cell, and half the membrane's width."""

    cell: NDArray[np.int64]
    distance: Picture
    half_width: Picture

    @property
    def is_membrane(self) -> NDArray[np.bool_]:
        """The pixels that are not inside a cell."""
        return self.distance < self.half_width


def lay_out_cells(seed: int, *, size: int) -> Cells:
    """Lays out cells of very different sizes with bent borders on a square picture."""
    rows, columns = _warped_grid(seed, size=size)
    seeds = _Seeds(seed, size=size)
    first, second = _two_nearest(seeds, rows, columns)
    apart = np.hypot(seeds.rows[first] - seeds.rows[second], seeds.columns[first] - seeds.columns[second])
    margin = seeds.power(second, rows, columns) - seeds.power(first, rows, columns)
    return Cells(first, margin / (2 * np.maximum(apart, 1)), _half_width(seed, size=size))


def _warped_grid(seed: int, *, size: int) -> tuple[Picture, Picture]:
    pixels = np.arange(size, dtype=np.float32)
    rows, columns = np.repeat(pixels[:, None], size, 1), np.repeat(pixels[None], size, 0)
    for grain, amplitude in _WARPS:
        across = stream_key(seed, "warp across", str(grain))
        rows = rows + amplitude * smooth_noise(
            stream_key(seed, "warp down", str(grain)), size=size, grain=grain
        )
        columns = columns + amplitude * smooth_noise(across, size=size, grain=grain)
    return rows, columns


def _half_width(seed: int, *, size: int) -> Picture:
    """Half the membrane's width at each pixel: it varies smoothly, and thickens into knots at some places."""
    variation = smooth_noise(stream_key(seed, "membrane width"), size=size, grain=_WIDTH_GRAIN)
    knots = smooth_noise(stream_key(seed, "membrane knots"), size=size, grain=_KNOT_GRAIN)
    width = _HALF_WIDTH + _HALF_WIDTH_VARIATION * variation
    width += _KNOT_WIDTH * np.clip(knots - _KNOT_LEVEL, 0, None)
    return np.asarray(np.clip(width, _NARROWEST, _WIDEST), dtype=np.float32)


class _Seeds:
    """Cell centres, one in each square of a grid that reaches beyond the picture, and their pushes."""

    def __init__(self, seed: int, *, size: int) -> None:
        self.per_side = int(np.ceil(size / _SPACING)) + 2 * _SQUARES_OUTSIDE
        count = self.per_side**2
        places = (np.arange(self.per_side, dtype=np.float32) - _SQUARES_OUTSIDE + 0.5) * _SPACING
        jitter = _JITTER * _SPACING * (draw_numbers(stream_key(seed, "cell places"), count=2 * count) - 0.5)
        self.rows = np.repeat(places, self.per_side) + jitter[:count]
        self.columns = np.tile(places, self.per_side) + jitter[count:]
        push = _STRONGEST_PUSH * draw_numbers(stream_key(seed, "cell push"), count=count) ** _PUSH_POWER
        self.push = (push * _SPACING) ** 2

    def within_reach(self, rows: Picture, columns: Picture) -> NDArray[np.int64]:
        """The points of all squares that contain one of the places or are near one."""
        spans = []
        for places in (rows, columns):
            square = (
                np.floor(np.array([places.min(), places.max()]) / _SPACING).astype(np.int64)
                + _SQUARES_OUTSIDE
            )
            low, high = np.clip(square, _REACH, self.per_side - 1 - _REACH)
            spans.append(np.arange(low - _REACH, high + _REACH + 1))
        return np.asarray(spans[0][:, np.newaxis] * self.per_side + spans[1]).reshape(-1)

    def two_nearest(self, rows: Picture, columns: Picture) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The nearest and the second nearest point of each place, by squared distance minus push."""
        near = self.within_reach(rows, columns)
        point_rows, point_columns = self.rows[near] - rows.mean(), self.columns[near] - columns.mean()
        own = point_rows**2 + point_columns**2 - self.push[near]
        places = np.stack([rows - rows.mean(), columns - columns.mean(), np.ones_like(rows)], axis=-1)
        # The square of the place itself is the same for all points, so it does not change which is nearest.
        powers = places @ np.stack([-2 * point_rows, -2 * point_columns, own])
        first = powers.argmin(axis=-1)
        np.put_along_axis(powers, first[..., np.newaxis], np.inf, axis=-1)
        return near[first], near[powers.argmin(axis=-1)]

    def power(self, number: NDArray[np.int64], rows: Picture, columns: Picture) -> Picture:
        """The squared distance of each place to its point, minus the point's push."""
        power: Picture = (
            (rows - self.rows[number]) ** 2 + (columns - self.columns[number]) ** 2 - self.push[number]
        )
        return power


def _two_nearest(
    seeds: _Seeds, rows: Picture, columns: Picture
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Nearest and second nearest point of every pixel, by blocks: only a few points are near a block."""
    first, second = np.empty(rows.shape, dtype=np.int64), np.empty(rows.shape, dtype=np.int64)
    starts = range(0, len(rows), _BLOCK)
    for top, left in product(starts, starts):
        block = (slice(top, top + _BLOCK), slice(left, left + _BLOCK))
        first[block], second[block] = seeds.two_nearest(rows[block], columns[block])
    return first, second
