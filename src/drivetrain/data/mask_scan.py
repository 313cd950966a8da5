"""Looks at image and mask files before training: sizes of all, pixels of as many as is worth the wait."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.data.decode import (
    BadSampleError,
    decode_image,
    displayed_size,
    image_of,
    naming_bad_sample,
    open_image,
)
from drivetrain.data.mask_files import MaskedFile
from drivetrain.data.mask_pixels import FoundValues, find_values
from drivetrain.errors import BadInputError

__all__ = ["Look", "decode_whole", "look_at_all", "naming_mask"]

_MOST_DECODED = 2000
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")


@dataclass(slots=True)
class Look:
    """What was seen of one image and its masks; `error` where something of it cannot be read."""

    size: tuple[int, int] | None = None
    has_colour: bool = False
    brightest: int = 0
    masks: dict[str, FoundValues] = field(default_factory=dict)
    error: BadSampleError | None = None


def look_at_all(files: Sequence[MaskedFile]) -> list[Look]:
    """All files by their headers, and the pixels of all or of an even selection of many."""
    every = -(-len(files) // _MOST_DECODED)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(
            threads.map(lambda place: _look(files[place], deep=place % every == 0), range(len(files)))
        )


def decode_whole(image: Image.Image, *, channels: int) -> NDArray[np.uint8]:
    """A whole image as 8-bit pixels (height, width, channels) in its own size."""
    size = displayed_size(image)
    return decode_image(image, channels=channels, size=size, choose_box=lambda w, h: (0, 0, w, h))


@contextmanager
def naming_mask(image: str, mask: str) -> Iterator[None]:
    """Turns whatever goes wrong with a mask into an error that names it and its image."""
    try:
        with naming_bad_sample(mask):
            yield
    except BadSampleError as error:
        raise BadSampleError(image, f"its mask {mask}: {error.reason}") from error


def _look(file: MaskedFile, *, deep: bool) -> Look:
    look = Look()
    try:
        with naming_bad_sample(file.image):
            _look_at_image(file, look, deep=deep)
        for mask in file.masks:
            with naming_mask(file.image, mask):
                size = _look_at_mask(mask, look, deep=deep)
            _require_size(file.image, mask, image_size=look.size, mask_size=size)
    except BadSampleError as error:
        look.error = error
    return look


def _look_at_image(file: MaskedFile, look: Look, *, deep: bool) -> None:
    def header(image: Image.Image) -> None:
        width, height = displayed_size(image)
        look.size, look.has_colour = (height, width), _has_colour(image)
        if deep:
            look.brightest = int(decode_whole(image, channels=1).max(initial=0))

    _with_image(file.image, header, deep=deep)


def _look_at_mask(mask: str, look: Look, *, deep: bool) -> tuple[int, int]:
    sizes: list[tuple[int, int]] = []

    def header(image: Image.Image) -> None:
        width, height = displayed_size(image)
        sizes.append((height, width))
        if deep:
            look.masks[mask] = find_values(image)

    _with_image(mask, header, deep=deep)
    return sizes[0]


def _with_image(path: str, use: Callable[[Image.Image], None], *, deep: bool) -> None:
    if deep:
        use(image_of(Path(path).read_bytes()))
        return
    with open(path, "rb") as file:
        use(open_image(file))


def _require_size(
    image: str, mask: str, *, image_size: tuple[int, int] | None, mask_size: tuple[int, int]
) -> None:
    if image_size is not None and image_size != mask_size:
        raise BadInputError(
            f"The mask {mask} is {mask_size[0]}x{mask_size[1]}, but its image {image} is {image_size[0]}x"
            f"{image_size[1]} (height x width); bring the two to one size."
        )


def _has_colour(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.asarray(image.getpalette("RGB")).reshape(-1, 3)
        return bool((palette != palette[:, :1]).any())
    return image.mode not in _GREY_MODES and not image.mode.startswith("I;16")
