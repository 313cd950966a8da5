"""Whether images mean the same when they are mirrored or turned, measured on the images themselves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.fingerprint.fingerprint import Asymmetry
from drivetrain.data.masks.pages import file_of

__all__ = ["AsymmetryMeter", "coarse_view"]

_CELLS = 8
_FEWEST = 3
_LEAST_DEVIATION = 1e-6

Grid = NDArray[np.float64]


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
        """The effect sizes over all images so far; None for fewer than three independent ones of a class."""
        groups = [
            np.stack([np.mean(views, axis=0) for views in files.values()])
            for files in self._views.values()
            if len(files) >= _FEWEST
        ]
        if not groups:
            return None
        return Asymmetry(
            left_right=_effect(groups, lambda views: views[:, :, ::-1]),
            up_down=_effect(groups, lambda views: views[:, ::-1]),
            quarter_turn=_effect(groups, lambda views: np.rot90(views, axes=(1, 2))),
        )


def _effect(groups: list[Grid], turn: Callable[[Grid], Grid]) -> float:
    """The root of the mean squared effect size of the cells' differences, without its bias.

    Of n images that have no preferred side, the squared effect size is 1/n on average.
    """
    squares, images = 0.0, 0
    for views in groups:
        difference = views - turn(views)
        deviation = np.maximum(difference.std(axis=0, ddof=1), _LEAST_DEVIATION)
        effects = difference.mean(axis=0) / deviation
        squares += float((effects**2).mean() - 1 / len(views)) * len(views)
        images += len(views)
    return round(sqrt(max(0.0, squares / images)), 3)
