"""Image files with masks as masked images, one per page, decoded on demand and cached."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.files.decode import naming_bad_sample
from drivetrain.data.masks.coding import MaskCoding, OutsideClassesError
from drivetrain.data.masks.find_pairs import MaskedFile
from drivetrain.data.masks.mask_advice import ClassesAsked, describe_outside
from drivetrain.data.masks.mask_pixels import HELD_BYTES, DecodedMask, HeldPixels, decode_mask
from drivetrain.data.masks.masked_images import ObjectPixels, cut_out
from drivetrain.data.masks.pages import OpenVolumes, decode_whole, in_channels, naming_mask

__all__ = ["MaskFolderImages"]

Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]

_HELD_BYTES = HELD_BYTES


class MaskFolderImages:
    """Pages of image files and their masks, decoded when asked for; a process keeps as many as fit.

    The arrays that `whole` returns may be cached, so callers must not write to them. `decoded` contains what
    the scan has already decoded.
    """

    def __init__(
        self,
        files: Sequence[MaskedFile],
        *,
        sizes: Sequence[tuple[int, int]],
        coding: MaskCoding,
        channels: int,
        asked: ClassesAsked,
        white_level: int | None = None,
        decoded: HeldPixels | None = None,
    ) -> None:
        self.files = tuple(files)
        self.coding = coding
        self.channels = channels
        self.white_level = white_level
        self._asked = asked
        self._sizes = tuple(sizes)
        self._decoded = decoded or HeldPixels()
        self._forget()

    def _forget(self) -> None:
        self._volumes = OpenVolumes()
        self._lock = threading.Lock()
        self._held: dict[int, Pair] = {}
        self._objects: dict[int, list[ObjectPixels]] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self.files)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_volumes", "_lock", "_held", "_objects", "_held_bytes")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def name(self, index: int) -> str:
        """The image's path, and the page where its file has several."""
        return self.files[index].name

    def size(self, index: int) -> tuple[int, int]:
        """Height and width from the file's header; of a file without a readable one those of another."""
        return self._sizes[index]

    def whole(self, index: int) -> Pair:
        """The image and the class of each pixel; raises BadSampleError where one of the files is bad."""
        pair = self._held.get(index)
        if pair is None:
            file = self.files[index]
            image = self._image_of(file)
            pair = image, self._mask_of(index, size=image.shape[:2])[..., np.newaxis]
            self._hold(self._held, index, pair, size=pair[0].nbytes + pair[1].nbytes)
        return pair

    def objects(self, index: int) -> list[ObjectPixels] | None:
        """The objects of an image that has several masks, one for each object."""
        file = self.files[index]
        if not file.is_by_object or len(file.masks) < 2:
            return None
        held = self._objects.get(index)
        return self._objects_of(index, size=None) if held is None else held

    def _image_of(self, file: MaskedFile) -> NDArray[np.uint8]:
        with naming_bad_sample(file.name):
            held = self._decoded.take_image(file.name)
            if held is not None:
                return in_channels(held, self.channels)
            stored = self._volumes.image(file.image, file.page)
            return decode_whole(stored, channels=self.channels, white_level=self.white_level)

    def _mask_of(self, index: int, *, size: tuple[int, ...]) -> NDArray[np.uint8]:
        file = self.files[index]
        classes = np.zeros(size, dtype=np.uint8)
        if file.is_by_object:
            for one in self._objects_of(index, size=size):
                classes[one.box] |= one.is_own
            return classes
        for mask in file.masks:
            with naming_mask(file.name, file.mask_name(mask)):
                np.maximum(classes, self._classes_of(file, mask), out=classes)
        return classes

    def _objects_of(self, index: int, *, size: tuple[int, ...] | None) -> list[ObjectPixels]:
        """The objects of an image, kept for those who ask for them after its mask."""
        file = self.files[index]
        found = [self._object_of(file, mask, size=size) for mask in file.masks]
        objects = [one for one in found if one is not None]
        if len(file.masks) > 1:
            self._hold(self._objects, index, objects, size=sum(one.is_own.nbytes for one in objects))
        return objects

    def _object_of(self, file: MaskedFile, mask: str, *, size: tuple[int, ...] | None) -> ObjectPixels | None:
        name = file.mask_name(mask)
        is_held, one = self._decoded.take_object(name)
        if is_held:
            return one
        with naming_mask(file.name, name):
            is_object = self._mask_file(file, mask).is_object()
            if size is not None and is_object.shape != tuple(size):
                raise ValueError(f"it is {_shown(is_object.shape)}, but its image is {_shown(size)}")
            return cut_out(is_object)

    def _classes_of(self, file: MaskedFile, mask: str) -> NDArray[np.uint8]:
        try:
            return self.coding.classes_in(self._mask_file(file, mask))
        except OutsideClassesError as error:
            said = describe_outside(error.code, coding=self.coding, asked=self._asked)
            raise ValueError(f"it {said}") from None

    def _mask_file(self, file: MaskedFile, mask: str) -> DecodedMask:
        held = self._decoded.take_mask(file.mask_name(mask))
        return held or decode_mask(self._volumes.image(mask, file.page))

    def _hold(self, place: dict[int, Any], index: int, value: object, *, size: int) -> None:
        with self._lock:
            has_room = self._held_bytes + self._decoded.bytes + size <= _HELD_BYTES
            if has_room and index not in place:
                place[index] = value
                self._held_bytes += size


def _shown(size: tuple[int, ...]) -> str:
    return f"{size[0]}x{size[1]}"
