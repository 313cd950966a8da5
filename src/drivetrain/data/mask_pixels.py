"""The pixels of mask files as they are written: a value each, or a colour."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

__all__ = ["FoundValues", "colour_of", "find_values", "object_pixels", "packed_colours", "plain_values"]

MaskKind = Literal["grey", "palette", "colour", "jpeg"]

# JPEG blurs what it stores; what lies between is neither black nor white.
_THRESHOLD, _DARKEST_GREY, _LIGHTEST_GREY = 128, 64, 192
_MOST_GREY = 0.1
_LOSSY = ("JPEG", "MPO")
_WIDEST_GREY = 255


@dataclass(frozen=True, slots=True)
class FoundValues:
    """What one mask file holds: its values as written, and the colour each of them shows as."""

    kind: MaskKind
    values: tuple[int, ...]
    colours: tuple[int, ...]
    is_lossy_grey: bool = False


def find_values(image: Image.Image) -> FoundValues:
    """Reads a mask for what is in it."""
    if image.format in _LOSSY:
        grey = _grey_of(image)
        is_between = (grey >= _DARKEST_GREY) & (grey < _LIGHTEST_GREY)
        values = _distinct(plain_values(image))
        return FoundValues("jpeg", values, _grey_colours(values), bool(is_between.mean() > _MOST_GREY))
    if image.mode == "P":
        values = _distinct(plain_values(image))
        palette = np.asarray(image.getpalette("RGB")).reshape(-1, 3)
        return FoundValues("palette", values, tuple(_pack(palette[value]) for value in values))
    if _is_grey(image):
        values = _distinct(plain_values(image))
        return FoundValues("grey", values, _grey_colours(values))
    return FoundValues("colour", (), _distinct(packed_colours(image)))


def plain_values(image: Image.Image) -> NDArray[Any]:
    """A grey value or palette index for each pixel (height, width)."""
    if image.format in _LOSSY:
        return np.where(_grey_of(image) >= _THRESHOLD, np.uint8(255), np.uint8(0))
    if image.mode == "P":
        return np.asarray(_upright(image))
    if not _is_grey(image):
        raise ValueError(f"its {image.mode} pixels are colours where the other masks hold single values")
    grey = _upright(image.convert("L") if image.mode in ("1", "LA", "La") else image)
    values = np.asarray(grey)
    if image.mode == "F" and not (values == np.floor(values)).all():
        raise ValueError("its floating-point pixels are no whole numbers, which classes are")
    return values.astype(np.int64) if image.mode == "F" else values


def packed_colours(image: Image.Image) -> NDArray[np.int32]:
    """Red, green and blue of each pixel in one number (height, width); transparency does not count."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        raise ValueError("its pixels of more than 8 bits are no colours, which the other masks hold")
    return _packed(np.asarray(_upright(image.convert("RGB"))))


def object_pixels(image: Image.Image) -> NDArray[np.bool_]:
    """Where a mask of one object is not black."""
    if _is_grey(image) or image.mode == "P" or image.format in _LOSSY:
        return np.asarray(plain_values(image) != 0)
    return np.asarray(packed_colours(image) != 0)


def colour_of(packed: int) -> tuple[int, int, int]:
    """Red, green and blue of a packed colour."""
    return packed >> 16, packed >> 8 & 255, packed & 255


def _is_grey(image: Image.Image) -> bool:
    return image.mode in ("1", "L", "LA", "La", "I", "F") or image.mode.startswith("I;16")


def _grey_of(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(_upright(image.convert("L")))


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image)


def _packed(pixels: NDArray[np.uint8]) -> NDArray[np.int32]:
    wide = pixels.astype(np.int32)
    packed: NDArray[np.int32] = (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]
    return packed


def _pack(colour: NDArray[Any]) -> int:
    red, green, blue = colour.tolist()
    return int(red) << 16 | int(green) << 8 | int(blue)


def _grey_colours(values: tuple[int, ...]) -> tuple[int, ...]:
    """The colours that grey values show as; none where a value is too bright for one."""
    if any(not 0 <= value <= _WIDEST_GREY for value in values):
        return ()
    return tuple(value * 0x010101 for value in values)


def _distinct(values: NDArray[Any]) -> tuple[int, ...]:
    if values.dtype == np.uint8:
        return tuple(np.flatnonzero(np.bincount(values.reshape(-1), minlength=256)).tolist())
    return tuple(np.unique(values).tolist())
