"""The sizes of the objects in masks: connected parts of every class but the background."""

from dataclasses import dataclass, field
from math import pi

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.fingerprint.fingerprint import ObjectSizes, Spread
from drivetrain.data.masks.masked_images import find_objects

__all__ = ["ObjectMeter", "spread_of"]

# Specks of an annotator's brush are no objects.
_SPECK_PIXELS = 4


def spread_of(values: list[float]) -> Spread:
    """Smallest, median and largest; zeros for no values."""
    if not values:
        return Spread(0.0, 0.0, 0.0)
    return Spread(*(round(float(value), 2) for value in (min(values), np.median(values), max(values))))


@dataclass(slots=True, kw_only=True)
class ObjectMeter:
    """Collects objects mask by mask."""

    background: int
    diameters_px: list[float] = field(default_factory=list)
    _masks: int = 0

    def add(self, mask: NDArray[np.uint8]) -> None:
        """Adds the objects of a mask."""
        self._masks += 1
        areas = np.bincount(find_objects(mask, background=self.background).reshape(-1))[1:]
        self.diameters_px += [2 * float(np.sqrt(area / pi)) for area in areas if area > _SPECK_PIXELS]

    def result(self) -> ObjectSizes | None:
        """The sizes so far; None without any object."""
        if not self.diameters_px:
            return None
        return ObjectSizes(
            diameter_px=spread_of(self.diameters_px), per_image=round(len(self.diameters_px) / self._masks, 1)
        )
