"""The samples of a data set that a fingerprint opens: whole images, with a label or a mask each."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.progress import counted
from drivetrain.data.files.decode import BadSampleError, naming_bad_sample
from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.labels import known_labels_of
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.source import Source, SubsetSource
from drivetrain.data.training_tiles import masked_of

__all__ = ["Look", "LookedAt", "Samples", "samples_of", "spread_indices", "unwrapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """One opened sample: its pixels (height, width, channels), its size in the file, its label or mask."""

    index: int
    name: str
    pixels: NDArray[Any]
    size_px: tuple[int, int]
    label: int | None = None
    mask: NDArray[np.uint8] | None = None


class Samples(Protocol):
    """The samples of one split, opened one by one."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str: ...

    def open(self, index: int) -> LookedAt:
        """A sample; raises BadSampleError if it cannot be read."""
        ...


def spread_indices(length: int, *, most: int) -> NDArray[np.int64]:
    """At most `most` indices, evenly over a split: files are often sorted by class."""
    count = min(length, most)
    return np.arange(count, dtype=np.int64) * length // max(1, count)


@dataclass(slots=True)
class Look:
    """Opens samples in order and keeps the names of those that cannot be read."""

    samples: Samples
    refuses_unreadable: bool = False
    unreadable: list[str] = field(default_factory=list)

    def at(self, indices: NDArray[np.int64], *, what: str) -> Iterator[LookedAt]:
        """The readable samples at `indices`."""
        with closing(counted(indices.tolist(), total=len(indices), what=what)) as places:
            for index in places:
                try:
                    yield self.samples.open(index)
                except BadSampleError:
                    if self.refuses_unreadable:
                        raise
                    self.unreadable.append(self.samples.name(index))


def samples_of(source: Source, *, has_dense_labels: bool) -> Samples:
    """The samples of a source, whole where it cuts tiles out of images or resizes them."""
    if has_dense_labels:
        return _Masked(masked_of(source))
    inner, places = unwrapped(source)
    return _Labelled(inner, places, known_labels_of(source))


def unwrapped(source: Source) -> tuple[Source, NDArray[np.int64]]:
    """The source below all subsets, and the places of the samples in it."""
    places = np.arange(len(source), dtype=np.int64)
    while isinstance(source, SubsetSource):
        places = source.indices[places]
        source = source.source
    return source, places


@dataclass(frozen=True, slots=True)
class _Masked:
    masked: MaskedImages

    def __len__(self) -> int:
        return len(self.masked)

    def name(self, index: int) -> str:
        return self.masked.name(index)

    def open(self, index: int) -> LookedAt:
        with naming_bad_sample(self.name(index)):
            pixels, mask = self.masked.whole(index)
        height, width = pixels.shape[:2]
        return LookedAt(
            index=index,
            name=self.name(index),
            pixels=pixels,
            size_px=(height, width),
            mask=mask[..., 0],
        )


@dataclass(frozen=True, slots=True)
class _Labelled:
    source: Source
    places: NDArray[np.int64]
    labels: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.places)

    def name(self, index: int) -> str:
        place = int(self.places[index])
        return self.source.store.name(place) if isinstance(self.source, ImageSource) else f"sample {place}"

    def open(self, index: int) -> LookedAt:
        place = int(self.places[index])
        images, labels = self.source.fetch(np.array([place], dtype=np.int64))
        height, width = images.shape[1:3]
        if isinstance(self.source, ImageSource):
            with naming_bad_sample(self.name(index)):
                width, height = self.source.store.size(place)
        label = labels[0] if self.labels is None else self.labels[index]
        return LookedAt(
            index=index,
            name=self.name(index),
            pixels=images[0],
            size_px=(height, width),
            label=int(label),
        )
