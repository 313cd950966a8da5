"""Noise for generated pictures: drawn by counters, so that a picture depends on its address alone."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_uniform, draw_words

Picture = NDArray[np.float32]

_DRAWS_PER_WORD = 2
_BYTES_PER_DRAW = 4
# The sum of four independent bytes: its mean, and the deviation that four uniform variances add up to.
_BYTES_MEAN = _BYTES_PER_DRAW * 127.5
_BYTES_DEVIATION = (_BYTES_PER_DRAW * (256**2 - 1) / 12) ** 0.5
# How far the lattice reaches beyond the picture, so that every pixel lies between four of its knots.
_EXTRA_KNOTS = 4


def draw_noise(key: int, *, count: int) -> Picture:
    """So many numbers of mean 0 and deviation 1, close to normal; a hashed word serves two of them."""
    words = draw_words(key, np.arange(-(-count // _DRAWS_PER_WORD), dtype=np.int64))
    parts = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _BYTES_PER_DRAW)
    sums = parts.sum(axis=1, dtype=np.int32)[:count].astype(np.float32)
    noise: Picture = (sums - np.float32(_BYTES_MEAN)) / np.float32(_BYTES_DEVIATION)
    return noise


def draw_numbers(key: int, *, count: int) -> Picture:
    """So many numbers of [0, 1)."""
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
    """How much each knot of a cubic spline counts for each pixel, (pixels, knots)."""
    knots = int(np.ceil(size / grain)) + _EXTRA_KNOTS
    positions = np.arange(size)[:, np.newaxis] / grain + 1.5
    distance = np.abs(positions - np.arange(knots))
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    weights = np.where(distance < 1, near, far)
    mean_square: float = (weights**2).sum(axis=1).mean()
    return np.asarray(weights / np.sqrt(mean_square), dtype=np.float32)
