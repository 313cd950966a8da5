"""Whether images mean the same when they are mirrored or turned, measured on the images themselves."""

from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_words, stream_key
from drivetrain.data.fingerprint.fingerprint import Asymmetry
from drivetrain.data.masks.pages import file_of

__all__ = ["AsymmetryMeter", "coarse_view"]

_CELLS = 8
# Fewer images, beyond the first of each class, do not tell differences from chance.
_FEWEST = 12
_DRAWS, _SURE = 200, 0.99
_TOP_BIT = np.uint64(63)
_LEAST_VARIANCE = 1e-12

Grid = NDArray[np.float64]
Counts = NDArray[np.int64]


def coarse_view(pixels: NDArray[Any]) -> Grid:
    """The grey image as a grid of 8 x 8 means, whatever its size and shape."""
    grey: Grid = pixels.mean(axis=2, dtype=np.float64)
    for axis in (0, 1):
        length = grey.shape[axis]
        firsts = np.arange(_CELLS) * length // _CELLS
        counts = np.maximum(np.diff(np.append(firsts, length)), 1)
        sums = np.add.reduceat(grey, firsts, axis=axis)
        grey = sums / np.expand_dims(counts, 1 - axis)
    return grey


@dataclass(slots=True)
class AsymmetryMeter:
    """Collects coarse views by class: a mirrored digit differs from its class, not from all digits.

    Pages of one file count as one image, because neighbouring pages look alike.
    """

    _views: dict[int, dict[str, list[Grid]]] = field(default_factory=dict)

    def add(self, pixels: NDArray[Any], *, label: int, name: str) -> None:
        """Adds an image."""
        by_file = self._views.setdefault(label, {})
        by_file.setdefault(file_of(name) or name, []).append(coarse_view(pixels))

    def result(self) -> Asymmetry | None:
        """The effect sizes over all images so far; None for too few independent ones."""
        classes = [
            np.stack([np.mean(views, axis=0) for views in files.values()])
            for files in self._views.values()
            if len(files) > 1
        ]
        counts = np.array([len(views) for views in classes])
        if counts.sum() - len(counts) < _FEWEST:
            return None
        views = np.concatenate(classes)
        return Asymmetry(
            left_right=_effect(views - views[:, :, ::-1], counts),
            up_down=_effect(views - views[:, ::-1], counts),
            quarter_turn=_effect(views - np.rot90(views, axes=(1, 2)), counts),
        )


def _effect(differences: Grid, counts: Counts) -> float:
    """The root of the mean squared effect size of the cells' differences; 0 if chance explains it.

    Images without a preferred side are as often mirrored as not. So the signs of the differences are drawn
    anew, image by image: the mean of what that gives is the bias, and the measured value counts only above
    nearly all of it. This holds for few images, small classes and cells that are not independent.
    """
    cells = differences.reshape(len(differences), -1)
    measured = _mean_square(cells, counts)
    key = stream_key(0, "signs of mirrored differences")
    words = draw_words(key, np.arange(_DRAWS * len(cells), dtype=np.int64)).reshape(_DRAWS, -1, 1)
    by_chance = np.array(
        [_mean_square(np.where(drawn >> _TOP_BIT, cells, -cells), counts) for drawn in words]
    )
    if measured <= np.quantile(by_chance, _SURE):
        return 0.0
    return round(sqrt(max(0.0, measured - float(by_chance.mean()))), 3)


def _mean_square(cells: Grid, counts: Counts) -> float:
    """The mean squared effect size of images sorted by class: a mean for each class, one deviation of all."""
    sums = np.add.reduceat(cells, np.cumsum(counts) - counts, axis=0)
    of_means = (sums**2 / counts[:, np.newaxis]).sum(axis=0)
    variances = ((cells**2).sum(axis=0) - of_means) / (len(cells) - len(counts))
    return float((of_means / np.maximum(variances, _LEAST_VARIANCE)).mean() / len(cells))
