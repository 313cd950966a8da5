"""A source of image files, decoded to one size when they are fetched."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.data.files.crop import Fit, RandomCrop
from drivetrain.data.files.decode import Box, decode_image, naming_bad_sample


def _no_indices() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


class ImageStore(Protocol):
    """Where images are stored: a folder of files, or a pack. It must be picklable for loader workers."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The name of an image in messages."""
        ...

    def short_name(self, index: int) -> str:
        """A name that is the same in the folder, in a copy of it and in a pack made from it."""
        ...

    def stored_bytes(self, index: int) -> int:
        """The stored size of an image in bytes; 0 if there is nothing to decode."""
        ...

    def read(self, index: int) -> bytes:
        """The stored bytes of an image, without decoding."""
        ...

    def size(self, index: int) -> tuple[int, int]:
        """Width and height as shown, without decoding."""
        ...

    def image(self, index: int) -> Image.Image:
        """An image, ready to be decoded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """Samples that are decoded, cropped and resized at every fetch; samples in `bad` are black."""

    store: ImageStore
    labels: NDArray[np.int64]
    fit: Fit
    channels: int
    crop: RandomCrop | None = None
    bad: NDArray[np.int64] = field(default_factory=_no_indices)
    white_level: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augments_at_decode(self) -> bool:
        """Whether training uses random crops, through `fetch_augmented`."""
        return self.crop is not None

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The centre crop of each image."""
        return self._decode(indices, [self.fit.centre_box] * len(indices)), self.labels[indices]

    def fetch_augmented(
        self, indices: NDArray[np.int64], passes: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The random crop of each image, which depends on the pass over the data."""
        assert self.crop is not None, "augmentation at decode is off"
        choosers = [_chooser(self.crop, draws) for draws in self.crop.draws(indices, passes)]
        return self._decode(indices, choosers), self.labels[indices]

    def check(self, index: int) -> None:
        """Decodes one sample; raises the error that names it if that is impossible."""
        self._pixels(index, self.fit.centre_box)

    def _decode(
        self, indices: NDArray[np.int64], choosers: list[Callable[[int, int], Box]]
    ) -> NDArray[np.uint8]:
        shape = (len(indices), self.fit.height, self.fit.width, self.channels)
        images = np.zeros(shape, dtype=np.uint8)
        is_bad = np.isin(indices, self.bad) if len(self.bad) else np.zeros(len(indices), dtype=bool)
        for place in np.flatnonzero(~is_bad).tolist():
            images[place] = self._pixels(int(indices[place]), choosers[place])
        return images

    def _pixels(self, index: int, choose_box: Callable[[int, int], Box]) -> NDArray[np.uint8]:
        with naming_bad_sample(self.store.name(index)):
            return decode_image(
                self.store.image(index),
                channels=self.channels,
                size=(self.fit.width, self.fit.height),
                choose_box=choose_box,
                white_level=self.white_level,
            )


def _chooser(crop: RandomCrop, draws: NDArray[np.float64]) -> Callable[[int, int], Box]:
    return lambda width, height: crop.box(width, height, draws=draws)
