"""Tells masks that number objects, 1 for the first of each image and so on, from masks of classes.

The values that the scan found already decide most of it: nearly every mask that is not empty holds exactly
the numbers 1 to k, and k varies as counts of objects do: no k is that of more than half of the masks, and
unless k reaches 8, more than two different ones are common (so that k reaches 3 at least). Classes that all
images show, like organs, fail there, and so do classes that come and go by themselves.

Only where that holds are a few masks read once more: nearly every number must be one piece. Up to 7 numbers
could still be layers, or parts within parts, of which deeper ones are missing at times; those touch.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masks.coding import MaskCoding
from drivetrain.data.masks.pages import OpenVolumes, naming_mask
from drivetrain.data.masks.pixels import FoundValues, decode_mask
from drivetrain.data.masks.scan import Sample

__all__ = ["advise_numbered"]

_MANY_NUMBERS = 8
_NEARLY_ALL = 0.9
_MOST_OF_ONE_COUNT, _MOST_OF_TWO_COUNTS = 0.5, 0.8
_MOST_MASKS_READ = 16
_MOST_PIXELS_READ = 32_000_000
# Not an object but what some formats draw around objects.
_OUTLINE = 255


def advise_numbered(samples: Sequence[Sample], coding: MaskCoding) -> Iterator[str]:
    """A sentence where masks, whose values nobody called classes, look like numbered objects."""
    if coding.by_object or coding.by_colour:
        return
    numbered = [one for one in _single_masks(samples) if _numbers(one[1])]
    highest = _highest_number([_numbers(found) for _, found in numbered])
    if highest and _are_objects([sample for sample, _ in numbered], highest=highest):
        yield (
            f"The masks look like numbered objects (1 to {highest}, each in one piece, and not as many in "
            f"each mask), but each number was taken as a class, which makes {len(coding.class_names)}; to "
            "tell objects from background, write one file for each object (masks/7/1.png, masks/7/2.png and "
            "so on for images/7.png), which makes all objects one class, or masks of 0 and 255; if they are "
            "classes, name them in classes.txt."
        )


def _single_masks(samples: Sequence[Sample]) -> Iterator[tuple[Sample, FoundValues]]:
    for sample in samples:
        for found in sample[1].masks.values():
            yield sample, found


def _numbers(found: FoundValues) -> tuple[int, ...]:
    return tuple(value for value in found.values if value not in (0, _OUTLINE))


def _highest_number(masks: Sequence[tuple[int, ...]]) -> int | None:
    """The most objects of a mask, if the numbers of each mask are as if objects were counted."""
    counts = [len(numbers) for numbers in masks if numbers == tuple(range(1, len(numbers) + 1))]
    if not counts or len(counts) < _NEARLY_ALL * len(masks):
        return None
    common = [times / len(counts) for _, times in Counter(counts).most_common(2)]
    is_varied = common[0] <= _MOST_OF_ONE_COUNT and (
        sum(common) <= _MOST_OF_TWO_COUNTS or max(counts) >= _MANY_NUMBERS
    )
    return max(counts) if is_varied else None


@dataclass(slots=True)
class _Seen:
    """How many numbers there are in the masks read, and how many of which kind."""

    numbers: int = 0
    in_one_piece: int = 0
    later: int = 0
    """Above 1."""
    touching: int = 0
    """Above 1, and touching a lower number."""


def _are_objects(samples: Sequence[Sample], *, highest: int) -> bool:
    seen = _Seen()
    volumes = OpenVolumes()
    for file, _ in _few_of(samples):
        (mask,) = file.masks
        with naming_mask(file.name, file.mask_name(mask)):
            values = decode_mask(volumes.image(mask, file.page)).values().astype(np.int32)
        _look_at_pieces(np.where(values == _OUTLINE, 0, values), seen)
    are_layers = highest < _MANY_NUMBERS and 0 < _NEARLY_ALL * seen.later <= seen.touching
    return not are_layers and seen.in_one_piece >= _NEARLY_ALL * seen.numbers


def _few_of(samples: Sequence[Sample]) -> Iterator[Sample]:
    """An even selection; of large masks as few as are looked at without a wait, but one."""
    pixels = 0
    for place in range(0, len(samples), -(-len(samples) // _MOST_MASKS_READ)):
        height, width = samples[place][1].size or (0, 0)
        if place and pixels + height * width > _MOST_PIXELS_READ:
            return
        pixels += height * width
        yield samples[place]


def _look_at_pieces(values: NDArray[np.int32], seen: _Seen) -> None:
    from scipy.ndimage import find_objects, label  # slow to import, and few masks come here

    touching = _touching_lower(values)
    for number, box in enumerate(find_objects(values), start=1):
        if box is not None:
            seen.numbers += 1
            seen.in_one_piece += label(values[box] == number, structure=np.ones((3, 3)))[1] == 1
            seen.later += number > 1
            seen.touching += number in touching


def _touching_lower(values: NDArray[np.int32]) -> set[int]:
    """The numbers of which a pixel lies beside one of a lower number, the background apart."""
    found: set[int] = set()
    for one, other in ((values[1:], values[:-1]), (values[:, 1:], values[:, :-1])):
        is_edge = (one != other) & (one != 0) & (other != 0)
        found.update(np.unique(np.maximum(one[is_edge], other[is_edge])).tolist())
    return found
