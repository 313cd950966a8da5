"""Pixels that the look at a folder has decoded, held until they are read: each file is decoded once."""

import threading
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masks.masked_images import ObjectPixels
from drivetrain.data.masks.pixels import DecodedMask

__all__ = ["HELD_BYTES", "HeldPixels"]

Value = TypeVar("Value")

HELD_BYTES = 256 * 2**20
# Masks come first: an image with a mask for each object has many files of them.
_SHARE_OF_IMAGES = 0.5


class HeldPixels:
    """Images and masks by name, as many as fit; what is taken is no longer held. Threads may share it.

    Sent to another process it is empty, which then decodes for itself.
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
