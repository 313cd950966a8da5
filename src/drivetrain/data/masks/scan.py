"""Scans image and mask files before training: headers of all, pixels of as many as the time allows."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from warnings import catch_warnings

import numpy as np
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import counted
from drivetrain.data.files.decode import (
    BadSampleError,
    displayed_size,
    has_16_bit_grey,
    is_animation,
    naming_bad_sample,
)
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.masks.find_pairs import MaskedFile
from drivetrain.data.masks.mask_pixels import FoundValues, HeldPixels, decode_mask, find_values
from drivetrain.data.masks.masked_images import cut_out
from drivetrain.data.masks.pages import (
    OpenVolumes,
    Size,
    count_pages,
    decode_whole,
    in_channels,
    naming_mask,
    opened,
    page_sizes,
    require_one_size,
    stored_size,
)

__all__ = ["Look", "MaskScan", "Sample", "as_record", "from_record"]

_MOST_DECODED = 2000
# About 20 seconds on two cores. A mask below _FEWEST_PIXELS takes as long as one of that size.
_MOST_PIXELS_OF_MASKS = 1_600_000_000
_FEWEST_PIXELS = 16_384
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
_WHOLE_RANGE_FORMATS = ("PNG", "PPM")
Record = dict[str, Any]
_PLAIN = ("size", "stored_size", "has_colour", "lacks_range", "has_16_bits", "is_animated", "brightest")


@dataclass(slots=True)
class Look:
    """What was seen of one image and its masks; `error` where something of it cannot be read."""

    size: Size | None = None
    stored_size: Size | None = None
    has_colour: bool = False
    lacks_range: bool = False
    has_16_bits: bool = False
    is_animated: bool = False
    brightest: int = 0
    masks: dict[str, FoundValues] = field(default_factory=dict)
    error: BadSampleError | None = None


Sample = tuple[MaskedFile, Look]


class MaskScan:
    """Scans files; decoded pixels go into `held`, so that they are not decoded twice."""

    def __init__(self, *, white_level: int | None, held: HeldPixels) -> None:
        self._white_level = white_level
        self._held = held
        self._volumes = OpenVolumes()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What, beside the files, decides what is seen."""
        return {
            "white_level": self._white_level,
            "most_decoded": _MOST_DECODED,
            "most_pixels_of_masks": _MOST_PIXELS_OF_MASKS,
        }

    def look_at_all(self, files: Sequence[MaskedFile]) -> list[Sample]:
        """Every page of every file with what was seen of it.

        All are looked at by their headers, the pixels of all images or of an even selection of many, and the
        pixels of all masks of classes unless that takes too long.
        """
        every = -(-len(files) // _MOST_DECODED)
        most_pages = max(1, _MOST_DECODED // max(1, len(files)))

        def look(place: int) -> list[Sample]:
            return self._look(files[place], most_pages=0 if place % every else most_pages)

        # Pillow warns about images that it then refuses; the user should see one message, not two.
        with catch_warnings(action="ignore"), ThreadPoolExecutor(os.cpu_count()) as threads:
            looks = counted(
                mapped(threads, look, range(len(files))),
                total=len(files),
                what="scanning images with masks",
            )
            samples = [sample for pages in looks for sample in pages]
            rest = [sample for sample in samples if _is_left(*sample)]
            if sum(_cost(look) for _, look in rest) <= _MOST_PIXELS_OF_MASKS:
                self._look_at_masks_of(rest, threads)
        return samples

    def _look(self, file: MaskedFile, *, most_pages: int) -> list[Sample]:
        """The pages of one file, the pixels of at most so many of them."""
        samples: list[Sample] = []
        try:
            with naming_bad_sample(file.image), opened(file.image, whole=most_pages > 0) as image:
                count = count_pages(image)
                deep = _spread(count, most=most_pages)
                for page in range(count):
                    sample = file if count == 1 else replace(file, page=page)
                    samples.append((sample, Look()))
                    with _kept_in(samples[-1:]), naming_bad_sample(sample.name):
                        self._look_at_image(image, page, samples[-1], deep=page in deep)
        except BadSampleError as error:
            return [(file, Look(error=error))]
        require_one_size(file.image, [look.stored_size for _, look in samples])
        for mask in file.masks:
            _require_alike(mask, self._look_at_mask(mask, samples, deep=deep), samples)
        return samples

    def _look_at_image(self, image: Image.Image, page: int, sample: Sample, *, deep: bool) -> None:
        image.seek(page)
        file, look = sample
        look.size, look.stored_size, look.has_colour = _size_of(image), stored_size(image), _has_colour(image)
        look.has_16_bits, look.is_animated = has_16_bit_grey(image), is_animation(image)
        look.lacks_range = image.mode == "F" or (
            image.mode == "I" and image.format not in _WHOLE_RANGE_FORMATS
        )
        if deep or look.lacks_range:
            channels = 3 if look.has_colour else 1
            pixels = decode_whole(image, channels=channels, white_level=self._white_level)
            look.brightest = int(in_channels(pixels, 1).max(initial=0))
            self._held.hold_image(file.name, pixels)

    def _look_at_mask(self, mask: str, samples: Sequence[Sample], *, deep: range) -> list[Size | None]:
        """The sizes of a mask's pages as far as they can be read, however many its image has."""
        sizes: list[Size | None] = []
        with (
            _kept_in(samples),
            naming_mask(samples[0][0].image, mask),
            opened(mask, whole=len(deep) > 0) as image,
        ):
            count = count_pages(image)
            if count != len(samples):
                return [*page_sizes(image)]
            for page, sample in enumerate(samples):
                sizes.append(self._look_at_mask_page(image, mask, page, sample, deep=page in deep))
        return sizes

    def _look_at_mask_page(
        self, image: Image.Image, mask: str, page: int, sample: Sample, *, deep: bool
    ) -> Size | None:
        file, look = sample
        size: Size | None = None
        if look.error is None:
            with _kept_in([sample]), naming_mask(file.name, file.mask_name(mask)):
                image.seek(page)
                size = _size_of(image)
                if deep:
                    look.masks[file.mask_name(mask)] = self._values_in(image, file, mask)
        return size

    def _values_in(self, image: Image.Image, file: MaskedFile, mask: str) -> FoundValues:
        decoded = decode_mask(image)
        if file.is_by_object:
            self._held.hold_object(file.mask_name(mask), cut_out(decoded.is_object()))
        else:
            self._held.hold_mask(file.mask_name(mask), decoded)
        return find_values(decoded)

    def _look_at_masks_of(self, samples: Sequence[Sample], threads: ThreadPoolExecutor) -> None:
        def look(sample: Sample) -> None:
            file, seen = sample
            for mask in file.masks:
                with _kept_in([sample]), naming_mask(file.name, file.mask_name(mask)):
                    image = self._volumes.image(mask, file.page)
                    seen.masks[file.mask_name(mask)] = self._values_in(image, file, mask)

        looks = mapped(threads, look, samples)
        list(counted(looks, total=len(samples), what="scanning more masks"))


def _spread(count: int, *, most: int) -> range:
    return range(0, count, -(-count // most)) if most else range(0)


@contextmanager
def _kept_in(samples: Iterable[Sample]) -> Iterator[None]:
    """An error inside becomes that of all samples that have none yet."""
    try:
        yield
    except BadSampleError as error:
        for sample, look in samples:
            look.error = look.error or BadSampleError(sample.name, error.reason)


def _is_left(sample: MaskedFile, look: Look) -> bool:
    """Whether the values of an image's masks matter and are not known yet; of objects all but 0 is one."""
    return not sample.is_by_object and look.error is None and not look.masks


def _cost(look: Look) -> int:
    height, width = look.size or (1, 1)
    return max(_FEWEST_PIXELS, height * width)


def _require_alike(mask: str, sizes: Sequence[Size | None], samples: Sequence[Sample]) -> None:
    """Refuses a mask that has not as many pages as its image, or another size than it."""
    if sizes and len(sizes) != len(samples):
        require_one_size(f"The mask {mask}", sizes)
        raise BadInputError(
            f"The mask {mask} has {_pages(len(sizes))}, but its image {samples[0][0].image} has "
            f"{_pages(len(samples))}; each page of an image needs a page of its mask, so save both with the "
            "same number of pages."
        )
    for size, (file, look) in zip(sizes, samples, strict=False):
        if size is not None and look.size is not None and size != look.size:
            raise BadInputError(
                f"The mask {file.mask_name(mask)} is {size[0]}x{size[1]}, but its image {file.name} is "
                f"{look.size[0]}x{look.size[1]} (height x width); give both the same size."
            )


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"


def _size_of(image: Image.Image) -> Size:
    width, height = displayed_size(image)
    return height, width


def _has_colour(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.asarray(image.getpalette("RGB")).reshape(-1, 3)
        return bool((palette != palette[:, :1]).any())
    return image.mode not in _GREY_MODES and not image.mode.startswith("I;16")


def as_record(files: Sequence[MaskedFile], samples: Sequence[Sample]) -> Record | None:
    """The looks at the pages of `files`; None where something could not be read, which may be mended.

    Most masks hold the same few values, so these stand in a list of their own.
    """
    if any(look.error is not None for _, look in samples):
        return None
    places = {file.image: place for place, file in enumerate(files)}
    values: dict[FoundValues, int] = {}

    def masks_of(file: MaskedFile, look: Look) -> list[int | None]:
        found = (look.masks.get(file.mask_name(mask)) for mask in file.masks)
        return [None if one is None else values.setdefault(one, len(values)) for one in found]

    looks = [
        [places[file.image], file.page, [getattr(look, name) for name in _PLAIN], masks_of(file, look)]
        for file, look in samples
    ]
    return {
        "values": [[one.kind, one.values, one.colours, one.is_lossy_grey] for one in values],
        "looks": looks,
    }


def from_record(files: Sequence[MaskedFile], record: Mapping[str, Any]) -> list[Sample]:
    """What `as_record` made a record of."""
    values = [
        FoundValues(kind, tuple(numbers), tuple(colours), is_lossy)
        for kind, numbers, colours, is_lossy in record["values"]
    ]
    return [
        _sample(files[place], page, plain, [None if one is None else values[one] for one in masks])
        for place, page, plain, masks in record["looks"]
    ]


def _sample(
    file: MaskedFile, page: int | None, plain: Sequence[Any], masks: Sequence[FoundValues | None]
) -> Sample:
    sample = file if page is None else replace(file, page=page)
    named = dict(zip(_PLAIN, plain, strict=True))
    sizes = {name: None if named[name] is None else tuple(named[name]) for name in ("size", "stored_size")}
    found = {
        sample.mask_name(mask): one for mask, one in zip(sample.masks, masks, strict=True) if one is not None
    }
    return sample, Look(**{**named, **sizes}, masks=found)
