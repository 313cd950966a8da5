"""The arrays behind a source that lies in memory, so that nobody needs a copy of them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.source import ArraySource, DataSpec, Source, SubsetSource
from drivetrain.data.tile_source import UniformSource

__all__ = ["HeldSamples", "held_samples"]


class HeldSamples(NamedTuple):
    """Images and labels of a source, or of a larger one of which `places` says where its samples lie."""

    images: NDArray[Any]
    labels: NDArray[Any]
    places: NDArray[np.int64] | None = None


def held_samples(source: Source, *, spec: DataSpec) -> HeldSamples | None:
    """The arrays whose rows are the very samples that `source` gives; None where it has none such."""
    if isinstance(source, SubsetSource):
        inner = held_samples(source.source, spec=spec)
        if inner is None:
            return None
        places = source.indices if inner.places is None else inner.places[source.indices]
        return inner._replace(places=places)
    held = _arrays_of(source)
    return held if held is not None and _is_usable(held, spec) else None


def _arrays_of(source: Source) -> HeldSamples | None:
    if isinstance(source, ArraySource):
        return HeldSamples(source.images, source.labels)
    if isinstance(source, UniformSource) and isinstance(source.masked, HeldMaskedImages):
        return None if len(source.bad) else HeldSamples(source.masked.images, source.masked.masks)
    return None


def _is_usable(held: HeldSamples, spec: DataSpec) -> bool:
    """Whether tensors can lie over the arrays: whole, in order, and in the type that samples have."""
    shape = (spec.height, spec.width, spec.channels)
    is_ready = all(array.flags.c_contiguous and array.flags.writeable for array in (held.images, held.labels))
    return is_ready and held.images.dtype == spec.image_dtype and held.images.shape[1:] == shape
