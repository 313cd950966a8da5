"""Mean and deviation of each channel, and whether images are grey."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColourMeter", "as_fraction"]

_DIGITS = 5


def as_fraction(pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Pixels from 0 to 1 where they are whole numbers; others as they are."""
    if pixels.dtype.kind in "ui":
        return pixels.astype(np.float64) / float(np.iinfo(pixels.dtype).max)
    return pixels.astype(np.float64)


@dataclass(slots=True)
class ColourMeter:
    """Collects the pixels of images; each image counts the same, whatever its size."""

    _means: list[NDArray[np.float64]] = field(default_factory=list)
    _squares: list[NDArray[np.float64]] = field(default_factory=list)
    _is_grey: bool = True

    def add(self, pixels: NDArray[Any]) -> None:
        """Adds an image (height, width, channels)."""
        values = as_fraction(pixels)
        self._means.append(values.mean(axis=(0, 1)))
        self._squares.append((values**2).mean(axis=(0, 1)))
        self._is_grey = self._is_grey and bool((pixels == pixels[..., :1]).all())

    @property
    def is_grey(self) -> bool:
        """Whether all channels of every image so far are equal."""
        return self._is_grey

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel."""
        return _rounded(np.mean(self._means, axis=0))

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel over all pixels."""
        variance = np.mean(self._squares, axis=0) - np.mean(self._means, axis=0) ** 2
        return _rounded(np.sqrt(np.maximum(variance, 0)))

    @property
    def brightness(self) -> list[float]:
        """The mean of every image, for a histogram."""
        return [float(mean.mean()) for mean in self._means]


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in np.atleast_1d(values))
