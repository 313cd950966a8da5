"""Warnings about masks that can be read but may not mean what the user intended, such as numbered objects,
and remedies for values that are not classes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.files.folder_files import describe_animations, first_names
from drivetrain.data.masks.coding import MaskCoding
from drivetrain.data.masks.mask_pixels import FoundValues, decode_mask
from drivetrain.data.masks.pages import OpenVolumes, naming_mask
from drivetrain.data.masks.scan import Look, Sample

__all__ = [
    "ClassesAsked",
    "advise",
    "advise_numbered",
    "advise_on_animations",
    "advise_on_dark_images",
    "describe_outside",
]

_DARK = 32
_WHITE = 255
_MANY_NUMBERS = 8
_NEARLY_ALL = 0.9
_MOST_OF_ONE_COUNT, _MOST_OF_TWO_COUNTS = 0.5, 0.8
_MOST_MASKS_READ = 16
_MOST_PIXELS_READ = 32_000_000
# Some formats draw outlines around objects with this value; it is not an object.
_OUTLINE = 255


def advise(seen: Sequence[Look], coding: MaskCoding, *, num_classes: int | None) -> Iterator[str]:
    """Sentences about lossy masks, and about classes that are missing or were guessed."""
    found = [values for look in seen for values in look.masks.values()]
    lossy = sum(values.kind == "jpeg" for values in found)
    if lossy:
        yield (
            f"{lossy} masks are JPEG files, and JPEG compression changes pixel values; pixels of 128 or more "
            "are read as white. Save masks as PNG to keep them exact."
        )
    if not coding.by_object:
        absent = coding.absent(found)
        if absent:
            yield f"The masks contain no pixel of class {first_names(absent)}."
        if num_classes is None:
            yield from _guessed_values(coding)


def advise_on_animations(samples: Sequence[Sample]) -> Iterator[str]:
    """A sentence where files hold more frames than the one that is read."""
    animated = [file.image for file, look in samples if look.is_animated]
    if animated:
        yield describe_animations(animated)


def advise_on_dark_images(seen: Sequence[Look]) -> Iterator[str]:
    """A warning if no image has bright pixels; many cameras use only 12 of the 16 bits."""
    brightest = max((look.brightest for look in seen), default=0)
    if not 0 < brightest < _DARK:
        return
    sentence = f"The images are very dark: no pixel is brighter than {brightest} of 255"
    if all(look.has_16_bits for look in seen if look.brightest):
        level = 2 ** int((brightest - 0.5) * 257).bit_length() - 1
        sentence += (
            f", because 16-bit images are read over their whole range; use --white-level {level} to read "
            f"{level} as white"
        )
    yield f"{sentence}."


def _guessed_values(coding: MaskCoding) -> Iterator[str]:
    values = [value[0] for value in coding.mask_values if len(value) == 1]
    is_named = coding.class_names != tuple(map(str, values))
    if not is_named and len(values) > 1 and values != list(range(len(values))):
        yield (
            f"The masks contain the values {first_names([*map(str, values)])}, and each is read as a class; "
            "use --num-classes N to read the values 0 to N-1 as classes instead."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassesAsked:
    """What a user said of the classes: how many by --num-classes, or their names by a file."""

    num_classes: int | None = None
    is_named: bool = False


def describe_outside(code: int, *, coding: MaskCoding, asked: ClassesAsked) -> str:
    """The problem and the remedy, to be put after `The mask X` or `it`."""
    return (
        f"contains {coding.shown(code)}, which is none of the {len(coding.class_names)} classes; "
        f"correct the mask, or {_remedy(code, coding=coding, asked=asked)}"
    )


def _remedy(code: int, *, coding: MaskCoding, asked: ClassesAsked) -> str:
    if asked.is_named:
        return "add the class to the file that names the classes"
    count = len(coding.class_names)
    is_numbered = coding.mask_values == tuple((number,) for number in range(count))
    if not coding.by_colour and is_numbered and count <= code < _WHITE:
        return f"use --num-classes {code + 1}"
    if asked.num_classes is not None:
        return f"leave out --num-classes {asked.num_classes}"
    return "give the value of each class in classes.json"


# Tells masks that number objects, 1 for the first of each image and so on, from masks of classes.
#
# The values that the scan found already decide most of it: nearly every mask that is not empty holds exactly
# the numbers 1 to k, and k varies as counts of objects do: no k is that of more than half of the masks, and
# unless k reaches 8, more than two different ones are common (so that k reaches 3 at least). Classes that all
# images show, like organs, fail there, and so do classes that come and go by themselves.
#
# Only where that holds are a few masks read once more: nearly every number must be one piece. Up to 7 numbers
# could still be layers, or parts within parts, of which deeper ones are missing at times; those touch.


def advise_numbered(samples: Sequence[Sample], coding: MaskCoding) -> Iterator[str]:
    """A sentence where masks, whose values nobody called classes, look like numbered objects."""
    if coding.by_object or coding.by_colour:
        return
    numbered = [one for one in _single_masks(samples) if _numbers(one[1])]
    highest = _highest_number([_numbers(found) for _, found in numbered])
    if highest and _are_objects([sample for sample, _ in numbered], highest=highest):
        yield (
            f"The masks look like numbered objects (values 1 to {highest}, each in one piece, in varying "
            f"numbers per mask), but each value is read as a class, which gives {len(coding.class_names)} "
            "classes; to separate objects from background, save one mask per object (masks/7/1.png, "
            "masks/7/2.png and so on for images/7.png), which makes all objects one class, or masks of 0 "
            "and 255; if the values are classes, name them in classes.txt."
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
