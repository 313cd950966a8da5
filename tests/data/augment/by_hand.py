"""What techniques for images with masks draw and where they sample, computed by hand."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from drivetrain.core.randomness import draw_words, mix64
from tests.data.augment.dense_helpers import Plane


def shifts_by_hand(draws: list[float], count: int) -> NDArray[np.float64]:
    """Normal numbers from the key's words, 16 bits each."""
    key = int(draws[0]) * 2**24 + int(draws[1])
    word = int(mix64(np.array([key * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64))[0])
    levels = draw_words(word, np.arange(-(-count // 4), dtype=np.int64)).view(np.int16)[:count]
    return np.asarray(ndtri((levels.astype(np.float64) + 32768 + 0.5) / 65536))


def corner_aligned(first: float, last: float, length: int) -> list[float]:
    """The rule as published: y1 (H - 1) + i (y2 - y1) (H - 1) / (out - 1)."""
    return [first * (length - 1) + i * (last - first) * (length - 1) / (length - 1) for i in range(length)]


def places_of(box: list[float], height: int, width: int) -> tuple[Plane, Plane]:
    top, left, bottom, right = box
    rows, columns = corner_aligned(top, bottom, height), corner_aligned(left, right, width)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    return y, x
