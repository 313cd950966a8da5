"""Image files with masks as masked images: decoded when they are asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.decode import image_of, naming_bad_sample
from drivetrain.data.mask_coding import MaskCoding, OutsideClassesError
from drivetrain.data.mask_files import MaskedFile
from drivetrain.data.mask_scan import decode_whole, naming_mask

__all__ = ["MaskFolderImages"]

Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]

_HELD_BYTES = 256 * 2**20


class MaskFolderImages:
    """Image files and their masks, decoded when they are asked for; a process keeps as many as fit.

    What `whole` gives may be kept for the next who asks, so nobody writes into it.
    """

    def __init__(
        self,
        files: Sequence[MaskedFile],
        *,
        sizes: Sequence[tuple[int, int]],
        coding: MaskCoding,
        channels: int,
    ) -> None:
        self.files = tuple(files)
        self.coding = coding
        self.channels = channels
        self._sizes = tuple(sizes)
        self._held: dict[int, Pair] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self.files)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": {}, "_held_bytes": 0}

    def name(self, index: int) -> str:
        """The image's path."""
        return self.files[index].image

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

    def _decoded(self, file: MaskedFile) -> Pair:
        with naming_bad_sample(file.image):
            image = decode_whole(image_of(Path(file.image).read_bytes()), channels=self.channels)
        classes = np.zeros(image.shape[:2], dtype=np.uint8)
        for mask in file.masks:
            with naming_mask(file.image, mask):
                np.maximum(classes, self._classes_of(mask), out=classes)
        return image, classes[..., np.newaxis]

    def _classes_of(self, mask: str) -> NDArray[np.uint8]:
        try:
            return self.coding.classes_in(image_of(Path(mask).read_bytes()))
        except OutsideClassesError as error:
            count = len(self.coding.class_names)
            raise OutsideClassesError(
                f"it holds {error} (--num-classes is {count}); correct the mask, or give its class a value "
                "by classes.json"
            ) from None
