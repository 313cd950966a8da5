"""The labels of a source, without decoding its images if possible."""

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.source import Source, SubsetSource, index_chunks


def labels_of(source: Source) -> NDArray[np.int64]:
    """Every sample's label, in order."""
    known = known_labels_of(source)
    if known is not None:
        return known
    image_bytes = source.fetch(np.zeros(1, dtype=np.int64))[0].nbytes
    chunks = index_chunks(len(source), sample_bytes=image_bytes)
    return np.concatenate([source.fetch(indices)[1] for indices in chunks])


def known_labels_of(source: Source) -> NDArray[np.int64] | None:
    """The labels, if the source has them without opening its samples."""
    if isinstance(source, SubsetSource):
        labels = known_labels_of(source.source)
        return None if labels is None else labels[source.indices]
    if hasattr(source, "known_labels"):
        known: NDArray[np.int64] | None = source.known_labels()
        return known
    held = getattr(source, "labels", None)
    return held if isinstance(held, np.ndarray) else None
