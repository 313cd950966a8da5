"""Images with masks as training samples: whole images if all have one size, otherwise tiles."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.draws import draw_per_sample
from drivetrain.data.files.decode import naming_bad_sample
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.source import Source, SubsetSource

__all__ = ["SubsetMasked", "TileSource", "UniformSource", "masked_of", "mirrored_places"]

Pair = tuple[NDArray[Any], NDArray[np.uint8]]


def mirrored_places(start: int, stop: int, *, length: int) -> NDArray[np.int64]:
    """The pixels at start..stop-1 of a line of `length` that is mirrored at both ends, over and over.

    The pixel at an end is seen twice (... 1 0 | 0 1 2 | 2 1 ...), so that a line of one pixel has a mirror
    image too.
    """
    places = np.arange(start, stop, dtype=np.int64) % (2 * length)
    return np.minimum(places, 2 * length - 1 - places)


def _no_indices() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _MaskedSource:
    """What both sources share; samples in `bad` have weight 0, and a readable sample takes their place."""

    masked: MaskedImages
    _: KW_ONLY
    bad: NDArray[np.int64] = field(default_factory=_no_indices)

    def __len__(self) -> int:
        return len(self.masked)

    def name(self, index: int) -> str:
        """What a message calls the sample."""
        return self.masked.name(index)

    def check(self, index: int) -> None:
        """Decodes one sample; raises the error that names it if that is impossible."""
        with naming_bad_sample(self.name(index)):
            self.masked.whole(index)

    def _whole(self, index: int) -> Pair:
        if index not in self.bad:
            return self.masked.whole(index)
        is_good = np.isin(np.arange(len(self)), self.bad, invert=True)
        return self.masked.whole(int(is_good.argmax()))


@dataclass(frozen=True, slots=True)
class UniformSource(_MaskedSource):
    """Whole images of one size: (samples, height, width, channels), and masks with their label channels."""

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The images at `indices` and their masks."""
        return _stacked([self._whole(index) for index in indices.tolist()])


@dataclass(frozen=True, slots=True)
class TileSource(_MaskedSource):
    """Tiles of side `tile` with `margin` pixels around them, cut out of images of any size.

    The tile itself lies inside the image where that is large enough; beyond the borders the image is
    mirrored. Masks are cut like their images.
    """

    _: KW_ONLY
    tile: int
    margin: int
    seed: int

    @property
    def augments_at_decode(self) -> bool:
        """Training takes another tile in every pass over the samples, by `fetch_augmented`."""
        return True

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tile in the middle of each image."""
        return _stacked([self._tile(index, down=0.5, across=0.5) for index in indices.tolist()])

    def fetch_augmented(
        self, indices: NDArray[np.int64], passes: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tile of each image that belongs to its pass over the samples."""
        down, across = (
            draw_per_sample(self.seed, f"tile {purpose}", passes=passes, indices=indices).tolist()
            for purpose in ("top", "left")
        )
        places = zip(indices.tolist(), down, across, strict=True)
        return _stacked([self._tile(index, down=top, across=left) for index, top, left in places])

    def _tile(self, index: int, *, down: float, across: float) -> Pair:
        image, mask = self._whole(index)
        rows, columns = (
            self._places(length, share) for length, share in zip(image.shape, (down, across), strict=False)
        )
        return image[rows[:, None], columns], mask[rows[:, None], columns]

    def _places(self, length: int, share: float) -> NDArray[np.int64]:
        """The rows or columns of a tile; `share` of [0, 1) says where among all its places it lies."""
        free = length - self.tile
        first = int(share * (abs(free) + 1)) + min(free, 0)
        return mirrored_places(first - self.margin, first + self.tile + self.margin, length=length)


@dataclass(frozen=True, slots=True)
class SubsetMasked:
    """Some of other masked images, in the order of `indices`."""

    masked: MaskedImages
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return self.masked.name(int(self.indices[index]))

    def size(self, index: int) -> tuple[int, int]:
        """Height and width."""
        return self.masked.size(int(self.indices[index]))

    def whole(self, index: int) -> Pair:
        """The image and its mask."""
        return self.masked.whole(int(self.indices[index]))


def masked_of(source: Source) -> MaskedImages:
    """The whole images behind a source of segmentation samples, for measuring and for pictures."""
    if isinstance(source, SubsetSource):
        return SubsetMasked(masked_of(source.source), source.indices)
    assert isinstance(source, UniformSource | TileSource), "not a source of images with masks"
    return source.masked


def _stacked(pairs: list[Pair]) -> tuple[NDArray[Any], NDArray[Any]]:
    images, masks = zip(*pairs, strict=True)
    return np.stack(images), np.stack(masks)
