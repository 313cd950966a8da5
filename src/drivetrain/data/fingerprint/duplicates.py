"""Images that lie in the training and in the validation set: results on them are too good."""

from collections import defaultdict
from hashlib import blake2b

import numpy as np

from drivetrain.core.progress import counted
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.fingerprint.fingerprint import Duplicates
from drivetrain.data.fingerprint.looked_at import Samples
from drivetrain.data.source import Source, SubsetSource

__all__ = ["find_duplicates"]

_SHOWN = 5
# Without the lengths of files, every image must be opened; beyond this it would take minutes.
_MOST_OPENED = 100_000


def find_duplicates(train: tuple[Source, Samples], validation: tuple[Source, Samples]) -> Duplicates | None:
    """Pairs of images with equal pixels; None where too many images would have to be opened."""
    of_train, of_validation = _lengths(train[0]), _lengths(validation[0])
    if of_train is None or of_validation is None:
        if len(train[1]) + len(validation[1]) > _MOST_OPENED:
            return None
        opened = [*range(len(train[1]))], [*range(len(validation[1]))]
    else:
        shared = set(of_train) & set(of_validation)
        opened = _as_long_as(of_train, shared), _as_long_as(of_validation, shared)
    digests = _digests(train[1], opened[0])
    found: list[tuple[str, str]] = []
    for digest, names in _digests(validation[1], opened[1]).items():
        found += [(digests[digest][0], name) for name in names if digest in digests]
    return Duplicates(count=len(found), first=tuple(found[:_SHOWN]))


def _lengths(source: Source) -> list[int] | None:
    """The length of every sample's file; None for samples without files."""
    places = np.arange(len(source), dtype=np.int64)
    while isinstance(source, SubsetSource):
        places = source.indices[places]
        source = source.source
    if not isinstance(source, ImageSource):
        return None
    return [source.store.stored_bytes(int(place)) for place in places]


def _as_long_as(lengths: list[int], shared: set[int]) -> list[int]:
    """The samples whose files are as long as some file of the other part."""
    return [index for index, length in enumerate(lengths) if length in shared]


def _digests(samples: Samples, indices: list[int]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = defaultdict(list)
    for index in counted(indices, total=len(indices), what="looking for equal images"):
        try:
            looked = samples.open(index)
        except BadSampleError:
            continue
        content = np.ascontiguousarray(looked.pixels)
        digest = blake2b(f"{looked.size_px}".encode() + content.tobytes(), digest_size=16).digest()
        found[digest].append(looked.name)
    return found
