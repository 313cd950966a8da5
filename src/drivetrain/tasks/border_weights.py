"""The border weight map of the U-Net paper: pixels between near objects count more."""

from dataclasses import dataclass, field
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masked_images import MaskedImages
from drivetrain.tasks.region_metrics import find_objects as number_objects

_TOP_CODE = 255
_MOST_KEPT_BYTES = 256 * 2**20


def border_codes(mask: NDArray[np.uint8], *, sigma: float, background: int = 0) -> NDArray[np.uint8]:
    """exp(-(d1 + d2)^2 / (2 sigma^2)) of every pixel as a code from 0 to 255, for a mask (height, width).

    d1 and d2 are the distances in pixels to the nearest and the second nearest object: 4-connected parts of
    one class other than `background`. As in the paper that holds for every pixel; inside an object d1 is 0.
    With fewer than two objects there is nothing between them, and all codes are 0.
    """
    objects = number_objects(mask, background=background)
    nearest, second = _two_distances(objects, reach=_reach(sigma))
    closeness = np.exp(-((nearest + second) ** 2) / (2 * sigma**2))
    return np.asarray(np.rint(_TOP_CODE * closeness), dtype=np.uint8)


def _reach(sigma: float) -> int:
    """From this distance on a code is rounded to 0."""
    return ceil(sigma * sqrt(2 * log(2 * _TOP_CODE)))


def _two_distances(
    objects: NDArray[np.int64], *, reach: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances to the two nearest objects, infinite where they are out of reach.

    Every object is looked at in its own surroundings only, however large the image.
    """
    from scipy.ndimage import distance_transform_edt, find_objects

    nearest, second = np.full((2, *objects.shape), np.inf)
    for number, box in enumerate(find_objects(objects), start=1):
        around = tuple(slice(max(0, side.start - reach), side.stop + reach) for side in box)
        distance = distance_transform_edt(objects[around] != number)
        second[around] = np.minimum(second[around], np.maximum(nearest[around], distance))
        nearest[around] = np.minimum(nearest[around], distance)
    return nearest, second


@dataclass(frozen=True, slots=True)
class WithBorderWeights:
    """Masked images with the codes of their border weights as a second label channel.

    The codes of an image are computed when it is first asked for, and kept while there are not too many.
    """

    masked: MaskedImages
    sigma: float
    background: int = 0
    _codes: dict[int, NDArray[np.uint8]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.masked)

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return self.masked.name(index)

    def size(self, index: int) -> tuple[int, int]:
        """Height and width."""
        return self.masked.size(index)

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The image and its mask, the classes first."""
        image, mask = self.masked.whole(index)
        codes = self._codes.get(index)
        if codes is None:
            codes = border_codes(mask[..., 0], sigma=self.sigma, background=self.background)
            if sum(kept.nbytes for kept in self._codes.values()) + codes.nbytes <= _MOST_KEPT_BYTES:
                self._codes[index] = codes
        return image, np.stack([mask[..., 0], codes], axis=-1)
