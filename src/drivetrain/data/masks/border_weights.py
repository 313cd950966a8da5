"""The border weight map of the U-Net paper: pixels between close objects get a larger loss weight."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.progress import counted
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.masks.masked_images import MaskedImages, ObjectImages, ObjectPixels
from drivetrain.data.masks.masked_images import find_objects as number_objects
from drivetrain.data.source import IGNORED

_TOP_CODE = 255
# Codes are expensive (a distance transform per object), so they are cached, up to this much memory.
_MOST_KEPT_BYTES = 256 * 2**20


def border_codes(mask: NDArray[np.uint8], *, sigma: float, background: int = 0) -> NDArray[np.uint8]:
    """`codes_between` the objects of a mask (height, width) of classes.

    Objects are the 4-connected parts of one class other than `background`.
    """
    from scipy.ndimage import find_objects

    numbers = number_objects(mask, background=background)
    objects = (
        ObjectPixels(box, numbers[box] == number) for number, box in enumerate(find_objects(numbers), start=1)
    )
    return codes_between(objects, shape=mask.shape, sigma=sigma)


def codes_between(
    objects: Iterable[ObjectPixels], *, shape: tuple[int, ...], sigma: float
) -> NDArray[np.uint8]:
    """exp(-(d1 + d2)^2 / (2 sigma^2)) of every pixel as a code from 0 to 255.

    d1 and d2 are the distances in pixels to the nearest and the second nearest object. As in the paper that
    holds for every pixel; inside an object d1 is 0. With fewer than two objects there is nothing between
    them, and all codes are 0.
    """
    nearest, second = _two_distances(objects, shape=shape, reach=reach_of(sigma))
    closeness = np.exp(-((nearest + second) ** 2) / (2 * sigma**2))
    return np.asarray(np.rint(_TOP_CODE * closeness), dtype=np.uint8)


def reach_of(sigma: float) -> int:
    """The distance in pixels from which every code rounds to 0."""
    return ceil(sigma * sqrt(2 * log(2 * _TOP_CODE)))


def _two_distances(
    objects: Iterable[ObjectPixels], *, shape: tuple[int, ...], reach: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances to the two nearest objects, infinite where they are out of reach.

    Distances are computed only in a window around each object, so the cost does not grow with the image.
    """
    from scipy.ndimage import distance_transform_edt

    nearest, second = np.full((2, *shape), np.inf)
    for one in objects:
        around = tuple(slice(max(0, side.start - reach), side.stop + reach) for side in one.box)
        is_other = np.ones(nearest[around].shape, dtype=bool)
        inside = tuple(
            slice(side.start - wide.start, side.stop - wide.start)
            for side, wide in zip(one.box, around, strict=True)
        )
        is_other[inside] = ~one.is_own
        distance = distance_transform_edt(is_other)
        second[around] = np.minimum(second[around], np.maximum(nearest[around], distance))
        nearest[around] = np.minimum(nearest[around], distance)
    return nearest, second


@dataclass(frozen=True, slots=True)
class WithBorderWeights:
    """Masked images with the codes of their border weights as a second label channel.

    If the images have one mask per object, touching objects stay separate. Ignored pixels are no objects
    (`has_ignored`: whether there may be some). The codes of an image are computed
    on first use and cached up to a memory limit.
    """

    masked: MaskedImages
    sigma: float
    background: int = 0
    has_ignored: bool = False
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
            codes = self._codes_of(index, mask[..., 0])
            if sum(kept.nbytes for kept in self._codes.values()) + codes.nbytes <= _MOST_KEPT_BYTES:
                self._codes[index] = codes
        return image, np.stack([mask[..., 0], codes], axis=-1)

    def is_idle(self) -> bool:
        """Whether all codes of all readable images are 0; stops at the first image with a code above 0."""
        places = range(len(self))
        looks = counted(
            map(self._has_codes, places),
            total=len(places),
            what="looking for borders",
        )
        with closing(looks):
            return not any(looks)

    def _codes_of(self, index: int, classes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        objects = self.masked.objects(index) if isinstance(self.masked, ObjectImages) else None
        if objects is None:
            if self.has_ignored:
                classes = np.where(classes == IGNORED, np.uint8(self.background), classes)
            return border_codes(classes, sigma=self.sigma, background=self.background)
        return codes_between(objects, shape=classes.shape, sigma=self.sigma)

    def _has_codes(self, index: int) -> bool:
        try:
            return bool(self.whole(index)[1][..., 1].any())
        except BadSampleError:  # --on-bad-sample decides later what happens to it.
            return False
