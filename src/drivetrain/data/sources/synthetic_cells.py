"""Where the cells and membranes of a generated electron micrograph are."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import stream_key
from drivetrain.data.sources.smooth_noise import Picture, draw_numbers, smooth_noise

__all__ = ["Cells", "lay_out_cells"]

_SPACING = 20.0
_REACH = 2
_SQUARES_OUTSIDE = 4
_BLOCK = 32
_JITTER = 0.9
# A cell that pushes its neighbours away grows by up to so many times the spacing; most push little.
_STRONGEST_PUSH = 1.9
_PUSH_POWER = 5
_WARPS = ((26.0, 5.0), (9.0, 1.3))
_HALF_WIDTH, _HALF_WIDTH_VARIATION, _WIDTH_GRAIN = 1.45, 0.2, 12.0
_NARROWEST, _WIDEST = 1.0, 3.5
_KNOT_GRAIN, _KNOT_LEVEL, _KNOT_WIDTH = 24.0, 1.25, 3.0


@dataclass(frozen=True, slots=True)
class Cells:
    """Each pixel's cell, its distance to the border with the next cell, and half the membrane's width."""

    cell: NDArray[np.int64]
    distance: Picture
    half_width: Picture

    @property
    def is_membrane(self) -> NDArray[np.bool_]:
        """The pixels that belong to no cell's inside."""
        return self.distance < self.half_width


def lay_out_cells(seed: int, *, size: int) -> Cells:
    """Cells of very different sizes with bent borders, a square picture of them."""
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
    """Membranes swell and thin, and where cells meet obliquely they spread into knots."""
    variation = smooth_noise(stream_key(seed, "membrane width"), size=size, grain=_WIDTH_GRAIN)
    knots = smooth_noise(stream_key(seed, "membrane knots"), size=size, grain=_KNOT_GRAIN)
    width = _HALF_WIDTH + _HALF_WIDTH_VARIATION * variation
    width += _KNOT_WIDTH * np.clip(knots - _KNOT_LEVEL, 0, None)
    return np.asarray(np.clip(width, _NARROWEST, _WIDEST), dtype=np.float32)


class _Seeds:
    """One point in each square of a grid that reaches beyond the picture, and how strongly it pushes."""

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
        """The points of all squares that any of the places lies in or near."""
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
        """At each place the point that wins and the one that comes second, by distance squared less push."""
        near = self.within_reach(rows, columns)
        point_rows, point_columns = self.rows[near] - rows.mean(), self.columns[near] - columns.mean()
        own = point_rows**2 + point_columns**2 - self.push[near]
        places = np.stack([rows - rows.mean(), columns - columns.mean(), np.ones_like(rows)], axis=-1)
        # Each place's own square is the same for all points, and left out.
        powers = places @ np.stack([-2 * point_rows, -2 * point_columns, own])
        first = powers.argmin(axis=-1)
        np.put_along_axis(powers, first[..., np.newaxis], np.inf, axis=-1)
        return near[first], near[powers.argmin(axis=-1)]

    def power(self, number: NDArray[np.int64], rows: Picture, columns: Picture) -> Picture:
        """The squared distance of each place to its point, less the point's push."""
        power: Picture = (
            (rows - self.rows[number]) ** 2 + (columns - self.columns[number]) ** 2 - self.push[number]
        )
        return power


def _two_nearest(
    seeds: _Seeds, rows: Picture, columns: Picture
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The winning and the second point of every pixel, block by block: only a few points matter to each."""
    first, second = np.empty(rows.shape, dtype=np.int64), np.empty(rows.shape, dtype=np.int64)
    starts = range(0, len(rows), _BLOCK)
    for top, left in product(starts, starts):
        block = (slice(top, top + _BLOCK), slice(left, left + _BLOCK))
        first[block], second[block] = seeds.two_nearest(rows[block], columns[block])
    return first, second
