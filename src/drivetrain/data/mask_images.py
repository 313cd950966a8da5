"""Pages of image files with masks as masked images: decoded when they are asked for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.decode import naming_bad_sample
from drivetrain.data.mask_coding import MaskCoding, OutsideClassesError
from drivetrain.data.mask_files import MaskedFile
from drivetrain.data.mask_outside import ClassesAsked, describe_outside
from drivetrain.data.mask_pages import OpenVolumes, decode_whole, naming_mask
from drivetrain.data.masked_images import ObjectPixels, cut_out

__all__ = ["MaskFolderImages"]

Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]

_HELD_BYTES = 256 * 2**20


class MaskFolderImages:
    """Pages of image files and their masks, decoded when asked for; a process keeps as many as fit.

    What `whole` gives may be kept for the next who asks, so nobody writes into it.
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
    ) -> None:
        self.files = tuple(files)
        self.coding = coding
        self.channels = channels
        self.white_level = white_level
        self._asked = asked
        self._sizes = tuple(sizes)
        self._volumes = OpenVolumes()
        self._held: dict[int, Pair] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self.files)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": {}, "_held_bytes": 0}

    def name(self, index: int) -> str:
        """The image's path, and the page where its file has several."""
        return self.files[index].name

    def size(self, index: int) -> tuple[int, int]:
        """Height and width from the file's header; of a file without a readable one those of another."""
        return self._sizes[index]

    def whole(self, index: int) -> Pair:
        """The image and the class of each pixel; raises BadSampleError where one of the files is bad."""
        pair = self._held.get(index)
        if pair is not None:
            return pair
        pair = self._decoded(self.files[index])
        size = pair[0].nbytes + pair[1].nbytes
        if self._held_bytes + size <= _HELD_BYTES:
            self._held[index] = pair
            self._held_bytes += size
        return pair

    def objects(self, index: int) -> list[ObjectPixels] | None:
        """The objects of an image that has several masks, one for each object."""
        file = self.files[index]
        if not file.is_by_object or len(file.masks) < 2:
            return None
        found = [cut_out(self._classes_of(file, mask) != 0) for mask in file.masks]
        return [one for one in found if one is not None]

    def _decoded(self, file: MaskedFile) -> Pair:
        with naming_bad_sample(file.name):
            stored = self._volumes.image(file.image, file.page)
            image = decode_whole(stored, channels=self.channels, white_level=self.white_level)
        classes = np.zeros(image.shape[:2], dtype=np.uint8)
        for mask in file.masks:
            np.maximum(classes, self._classes_of(file, mask), out=classes)
        return image, classes[..., np.newaxis]

    def _classes_of(self, file: MaskedFile, mask: str) -> NDArray[np.uint8]:
        with naming_mask(file.name, file.mask_name(mask)):
            try:
                return self.coding.classes_in(self._volumes.image(mask, file.page))
            except OutsideClassesError as error:
                said = describe_outside(error.code, coding=self.coding, asked=self._asked)
                raise ValueError(f"it {said}") from None
