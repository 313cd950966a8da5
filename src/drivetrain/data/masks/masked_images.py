"""Images with a mask each, the basis of segmentation sources: protocols, images in memory, objects."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.progress import counted
from drivetrain.data.source import DataSpec


@runtime_checkable
class MaskedImages(Protocol):
    """Whole images of any sizes, each with its mask; the same index always gives the same pair.

    Loader workers use it too, so it must be picklable.
    """

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """What a message calls the image."""
        ...

    def size(self, index: int) -> tuple[int, int]:
        """Height and width, without decoding where the files allow it."""
        ...

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The image (height, width, channels) and its mask (height, width, label channels).

        Label channel 0 is the class of each pixel; a second one, where there is one, is the code of its
        border weight.
        """
        ...


@dataclass(frozen=True, slots=True)
class ObjectPixels:
    """One object of an image: the box it lies in, and which of the box's pixels are its own."""

    box: tuple[slice, slice]
    is_own: NDArray[np.bool_]


@runtime_checkable
class ObjectImages(Protocol):
    """Masked images that keep objects separate even if they touch or overlap."""

    def objects(self, index: int) -> list[ObjectPixels] | None:
        """The objects of an image; None where nothing but the class of each pixel is known."""
        ...


@dataclass(slots=True, kw_only=True)
class HeldMaskedImages:
    """Masked images of one size that lie in memory: (samples, height, width, channels) each.

    The arrays may move to memory that ranks share (`held_once.py`); their values stay.
    """

    images: NDArray[Any]
    masks: NDArray[np.uint8]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return self.names[index]

    def size(self, index: int) -> tuple[int, int]:
        """Height and width."""
        height, width = self.images[index].shape[:2]
        return height, width

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The image and its mask."""
        return self.images[index], self.masks[index]


def cut_out(is_object: NDArray[np.bool_]) -> ObjectPixels | None:
    """The object of a mask (height, width); None where it has no pixel."""
    rows, columns = (np.flatnonzero(is_object.any(axis=axis)).tolist() for axis in (1, 0))
    if not rows:
        return None
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    return ObjectPixels(box, is_object[box].copy())


def pixel_counts(masked: MaskedImages, *, num_classes: int) -> NDArray[np.int64]:
    """How many pixels of each class the masks hold; ignored ones are not counted."""
    counts = np.zeros(num_classes, dtype=np.int64)
    places = range(len(masked))
    for index in counted(places, total=len(places), what="counting pixels of classes"):
        found = np.bincount(masked.whole(index)[1][..., 0].reshape(-1), minlength=num_classes)
        counts += found[:num_classes]
    return counts


def find_objects(classes: NDArray[np.uint8], *, background: int = 0) -> NDArray[np.int64]:
    """Every 4-connected part of one class by its number from 1 on; 0 is the background."""
    from skimage.measure import label

    objects: NDArray[Any] = label(classes, background=background, connectivity=1)  # type: ignore[no-untyped-call]
    return objects.astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSplits:
    """The masked images of each split before any are held out, with warnings for the user.

    Where images differ in size, the height and width of `spec` are those of the largest.
    """

    train: MaskedImages
    validation: MaskedImages | None
    test: MaskedImages | None
    spec: DataSpec
    warnings: list[str] = field(default_factory=list)
