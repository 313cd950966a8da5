"""Decodes mask files to their stored values, and caches what a scan has decoded until it is used."""

import threading
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from drivetrain.data.masks.masked_images import ObjectPixels

__all__ = [
    "HELD_BYTES",
    "DecodedMask",
    "FoundValues",
    "HeldPixels",
    "colour_of",
    "decode_mask",
    "find_values",
]

MaskKind = Literal["grey", "palette", "colour", "jpeg"]
# JPEG blurs edges: values from 64 to 191 are neither clearly black nor clearly white.
_THRESHOLD, _DARKEST_GREY, _LIGHTEST_GREY = 128, 64, 192
# Above this share of such pixels, a mask is not a blurred black-and-white one.
_MOST_GREY = 0.1
_LOSSY = ("JPEG", "MPO")
_WIDEST_GREY = 255
Value = TypeVar("Value")
HELD_BYTES = 256 * 2**20
# Masks get the larger share: an image with one mask per object has many mask files to decode again.
_SHARE_OF_IMAGES = 0.5


@dataclass(frozen=True, slots=True)
class FoundValues:
    """What one mask file holds: its values as written, and the colour each of them shows as."""

    kind: MaskKind
    values: tuple[int, ...]
    colours: tuple[int, ...]
    is_lossy_grey: bool = False


@dataclass(frozen=True, slots=True)
class DecodedMask:
    """A mask file, decoded: (height, width) grey values, palette indices, or colours packed into a number."""

    kind: MaskKind
    mode: str
    pixels: NDArray[Any]
    palette: NDArray[np.int32] | None = None
    """The packed colour of each index."""
    is_lossy_grey: bool = False

    def values(self) -> NDArray[Any]:
        """A grey value or palette index for each pixel."""
        if self.kind == "colour":
            raise ValueError(f"it has colour pixels ({self.mode}), but the other masks have grey values")
        return self.pixels

    def colours(self) -> NDArray[np.int32]:
        """Red, green and blue of each pixel in one number; transparency does not count."""
        if self.kind == "colour":
            return self.pixels
        if self.palette is not None:
            return np.asarray(self.palette[self.pixels])
        if self.pixels.dtype != np.uint8:
            raise ValueError("it has grey values of more than 8 bits, but the other masks have colours")
        return self.pixels.astype(np.int32) * np.int32(0x010101)

    def is_object(self) -> NDArray[np.bool_]:
        """Where a mask of one object is not black."""
        return np.asarray(self.pixels != 0)


def decode_mask(image: Image.Image) -> DecodedMask:
    """The pixels of a mask; of JPEG files those nearer to white are white, the others black."""
    mode = image.mode
    if image.format in _LOSSY:
        grey = np.asarray(_upright(image.convert("L")))
        is_between = (grey >= _DARKEST_GREY) & (grey < _LIGHTEST_GREY)
        binary = np.where(grey >= _THRESHOLD, np.uint8(255), np.uint8(0))
        return DecodedMask("jpeg", "L", binary, is_lossy_grey=bool(is_between.mean() > _MOST_GREY))
    if mode == "P":
        return DecodedMask("palette", mode, np.asarray(_upright(image)), _palette_of(image))
    if mode in ("1", "L", "LA", "La", "I", "F") or mode.startswith("I;16"):
        grey_image = _upright(image.convert("L") if mode in ("1", "LA", "La") else image)
        return DecodedMask("grey", mode, _whole_numbers(np.asarray(grey_image)))
    return DecodedMask("colour", mode, _packed(np.asarray(_upright(image.convert("RGB")))))


def find_values(mask: DecodedMask) -> FoundValues:
    """What is in a mask."""
    distinct = _distinct(mask.pixels)
    if mask.kind == "colour":
        return FoundValues("colour", (), distinct)
    if mask.palette is not None:
        return FoundValues("palette", distinct, tuple(mask.palette[list(distinct)].tolist()))
    return FoundValues(mask.kind, distinct, _grey_colours(distinct), mask.is_lossy_grey)


def colour_of(packed: int) -> tuple[int, int, int]:
    """Red, green and blue of a packed colour."""
    return packed >> 16, packed >> 8 & 255, packed & 255


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image)


def _palette_of(image: Image.Image) -> NDArray[np.int32]:
    """All 256 entries; those that a file does not have are black, as Pillow shows them."""
    stored = np.asarray(image.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
    palette = np.zeros(256, dtype=np.int32)
    palette[: len(stored)] = _packed(stored)
    return palette


def _whole_numbers(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise ValueError("some of its floating-point pixels are not finite (NaN or infinity)")
        if not (values == np.floor(values)).all():
            raise ValueError("its floating-point pixels are not whole numbers, as classes must be")
        values = values.astype(np.int64)
    is_wide = values.dtype != np.uint8
    # Masks are kept in memory, and most that are written wide hold few classes.
    is_narrow = is_wide and values.size > 0 and values.min() >= 0 and values.max() <= _WIDEST_GREY
    return values.astype(np.uint8) if is_narrow else values


def _packed(pixels: NDArray[np.uint8]) -> NDArray[np.int32]:
    wide = pixels.astype(np.int32)
    packed: NDArray[np.int32] = (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]
    return packed


def _grey_colours(values: tuple[int, ...]) -> tuple[int, ...]:
    """The colours that grey values show as; none where a value is too bright for one."""
    if any(not 0 <= value <= _WIDEST_GREY for value in values):
        return ()
    return tuple(value * 0x010101 for value in values)


def _distinct(values: NDArray[Any]) -> tuple[int, ...]:
    if values.dtype == np.uint8:
        return tuple(np.flatnonzero(np.bincount(values.reshape(-1), minlength=256)).tolist())
    return tuple(np.unique(values).tolist())


class HeldPixels:
    """A bounded, thread-safe cache of decoded images and masks by name; taking an entry removes it.

    A pickled copy is empty: the other process decodes for itself.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self.bytes = 0
        self._most_bytes = HELD_BYTES if most_bytes is None else most_bytes
        self._images: dict[str, NDArray[np.uint8]] = {}
        self._masks: dict[str, DecodedMask] = {}
        self._objects: dict[str, ObjectPixels | None] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["HeldPixels"], tuple[int]]:
        return HeldPixels, (self._most_bytes,)

    def hold_image(self, name: str, pixels: NDArray[np.uint8]) -> None:
        """Keeps an image in its own channels, where there is room."""
        self._hold(
            self._images, name, pixels, size=pixels.nbytes, most=int(self._most_bytes * _SHARE_OF_IMAGES)
        )

    def hold_mask(self, name: str, mask: DecodedMask) -> None:
        """Keeps a mask of classes, where there is room."""
        self._hold(self._masks, name, mask, size=mask.pixels.nbytes, most=self._most_bytes)

    def hold_object(self, name: str, one: ObjectPixels | None) -> None:
        """Keeps the object of a mask that shows one, where there is room."""
        size = 0 if one is None else one.is_own.nbytes
        self._hold(self._objects, name, one, size=size, most=self._most_bytes)

    def take_image(self, name: str) -> NDArray[np.uint8] | None:
        """An image, if it is held."""
        pixels = self._images.pop(name, None)
        self._release(0 if pixels is None else pixels.nbytes)
        return pixels

    def take_mask(self, name: str) -> DecodedMask | None:
        """A mask of classes, if it is held."""
        mask = self._masks.pop(name, None)
        self._release(0 if mask is None else mask.pixels.nbytes)
        return mask

    def take_object(self, name: str) -> tuple[bool, ObjectPixels | None]:
        """Whether the object of a mask is held, and the object; None where the mask is black."""
        try:
            one = self._objects.pop(name)
        except KeyError:
            return False, None
        self._release(0 if one is None else one.is_own.nbytes)
        return True, one

    def _hold(self, place: dict[str, Value], name: str, value: Value, *, size: int, most: int) -> None:
        with self._lock:
            if self.bytes + size <= most:
                place[name] = value
                self.bytes += size

    def _release(self, size: int) -> None:
        with self._lock:
            self.bytes -= size
