"""Images that a data set has twice: results are too good where a copy lies on the other side of a split."""

from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.progress import counted
from drivetrain.data.files.decode import BadSampleError, naming_bad_sample
from drivetrain.data.files.image_source import ImageSource, ImageStore
from drivetrain.data.fingerprint.fingerprint import Duplicates
from drivetrain.data.fingerprint.looked_at import Samples, spread_indices, unwrapped
from drivetrain.data.source import Source

__all__ = ["find_copies", "find_duplicates"]

# Files are read as bytes, and only where another one is as long; all other images are decoded.
_MOST_READ, _MOST_DECODED = 4000, 1000
# Rather than fewer images that are compared with all others, a sample of the others is taken.
_FEWEST_COMPARED = 100
_SHOWN = 5

Integers = NDArray[np.int64]


def find_duplicates(train: tuple[Source, Samples], validation: tuple[Source, Samples]) -> Duplicates:
    """The validation images that are training images too; of large data sets only some are compared."""
    of_train, of_validation = _Images.of(*train), _Images.of(*validation)
    if of_train.store is None or of_validation.store is None:
        of_train, of_validation = of_train.by_pixels(), of_validation.by_pixels()
    chosen = _choose(of_validation.lengths, of_train.lengths, most=of_train.most)
    known = {digest: index for index, digest in reversed(_digests(of_train, chosen.others))}
    pairs = [
        (of_train.samples.name(known[digest]), of_validation.samples.name(index))
        for index, digest in _digests(of_validation, chosen.opened)
        if digest in known
    ]
    return Duplicates(
        count=len(pairs),
        first=tuple(pairs[:_SHOWN]),
        compared=chosen.compared if chosen.compared < len(of_validation.lengths) else None,
        compared_with=len(chosen.others) if chosen.is_cut else None,
    )


def find_copies(train: tuple[Source, Samples]) -> Duplicates:
    """The training images that have an equal one; of large data sets only some are compared."""
    images = _Images.of(*train)
    chosen = _choose(images.lengths, images.lengths, most=images.most, is_same=True)
    equal: dict[bytes, list[int]] = defaultdict(list)
    for index, digest in _digests(images, chosen.others):
        equal[digest].append(index)
    opened = set(chosen.opened.tolist())
    copied = [indices for indices in equal.values() if len(indices) > 1 and opened.intersection(indices)]
    name = images.samples.name
    return Duplicates(
        count=sum(len(opened.intersection(indices)) for indices in copied),
        first=tuple((name(indices[0]), name(indices[1])) for indices in copied[:_SHOWN]),
        compared=chosen.compared if chosen.compared < len(images.lengths) else None,
        compared_with=len(chosen.others) if chosen.is_cut else None,
    )


@dataclass(frozen=True, slots=True)
class _Images:
    """The images of a split, with the lengths of their files; without a store they have none."""

    samples: Samples
    lengths: Integers
    store: ImageStore | None
    places: Integers

    @classmethod
    def of(cls, source: Source, samples: Samples) -> Self:
        inner, places = unwrapped(source)
        if not isinstance(inner, ImageSource):
            return cls(samples, np.zeros(len(samples), dtype=np.int64), None, places)
        lengths = [_length(inner.store, place) for place in places.tolist()]
        return cls(samples, np.array(lengths, dtype=np.int64), inner.store, places)

    def by_pixels(self) -> "_Images":
        return _Images(self.samples, np.zeros_like(self.lengths), None, self.places)

    @property
    def most(self) -> int:
        return _MOST_DECODED if self.store is None else _MOST_READ

    def digest(self, index: int) -> bytes:
        """What equal images have in common; raises BadSampleError if an image cannot be read."""
        if self.store is None:
            looked = self.samples.open(index)
            content = f"{looked.size_px}".encode() + np.ascontiguousarray(looked.pixels).tobytes()
        else:
            with naming_bad_sample(self.samples.name(index)):
                content = self.store.read(int(self.places[index]))
            if not content:
                raise BadSampleError(self.samples.name(index), "it is empty")
        return blake2b(content, digest_size=16).digest()


def _length(store: ImageStore, place: int) -> int:
    try:
        return store.stored_bytes(place)
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class _Chosen:
    """How many images are compared, those of them that must be opened, and those they are compared with.

    `is_cut` says that these are not all that might be equal.
    """

    compared: int
    opened: Integers
    others: Integers
    is_cut: bool = False


def _choose(lengths: Integers, others: Integers, *, most: int, is_same: bool = False) -> _Chosen:
    """Chooses images for which at most `most` must be opened; with `is_same` both are the same images."""
    found, counts = np.unique(others, return_counts=True)
    known = found[counts > is_same]
    count = len(lengths)
    while count >= min(_FEWEST_COMPARED, len(lengths)):
        compared = spread_indices(len(lengths), most=count)
        opened = compared[np.isin(lengths[compared], known)]
        equally_long = np.flatnonzero(np.isin(others, lengths[opened]))
        if len(equally_long) + (0 if is_same else len(opened)) <= most:
            return _Chosen(len(compared), opened, equally_long)
        count //= 2
    opened = spread_indices(len(lengths), most=most // 2)
    if is_same:
        # Copies are often neighbours by name.
        opened = np.unique(np.concatenate([opened, np.minimum(opened + 1, len(lengths) - 1)]))
    cut = opened if is_same else spread_indices(len(others), most=most - len(opened))
    return _Chosen(len(opened), opened, cut, is_cut=len(cut) < len(others))


def _digests(images: _Images, indices: Integers) -> list[tuple[int, bytes]]:
    """The readable images with their digests."""
    found: list[tuple[int, bytes]] = []
    for index in counted(indices.tolist(), total=len(indices), what="looking for equal images"):
        try:
            found.append((index, images.digest(index)))
        except BadSampleError:
            continue
    return found
