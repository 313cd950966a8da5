"""All samples of a source in device memory, for the training and evaluation feeds."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.progress import counted
from drivetrain.data.bad_samples import reads_files
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.preprocess import Preparation, channels_last_view
from drivetrain.data.source import (
    CHUNK_BYTES,
    ArraySource,
    DataSpec,
    Source,
    SubsetSource,
    index_chunks,
    require_finite_fetch,
    require_labels,
)
from drivetrain.data.training_tiles import UniformSource
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.ranks.shared_memory import Layout, shared_arrays

__all__ = ["HeldSamples", "ResidentData", "held_samples"]

# Files per chunk at most: a chunk is decoded by one thread, so small chunks share the work more evenly.
_FILES_AT_A_TIME = 16


class HeldSamples(NamedTuple):
    """In-memory images and labels; if `places` is set, sample i of the source is row `places[i]`."""

    images: NDArray[Any]
    labels: NDArray[Any]
    places: NDArray[np.int64] | None = None


def held_samples(source: Source, *, spec: DataSpec) -> HeldSamples | None:
    """The in-memory arrays whose rows are the samples of `source`; None if it has no such arrays."""
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
    """Whether tensors can share the arrays' memory: contiguous, writeable, and of the samples' type."""
    # torch.from_numpy warns about arrays that are not writeable.
    shape = (spec.height, spec.width, spec.channels)
    is_ready = all(array.flags.c_contiguous and array.flags.writeable for array in (held.images, held.labels))
    return is_ready and held.images.dtype == spec.image_dtype and held.images.shape[1:] == shape


class ResidentData:
    """All samples of a source in device memory, not yet preprocessed.

    On a CPU, a source whose samples are in memory already is not copied.
    """

    def __init__(
        self,
        source: Source,
        *,
        preprocess: Preparation,
        device: torch.device,
        group: ReplicaGroup = ALONE,
    ) -> None:
        spec = preprocess.spec
        self._shape = (-1, spec.height, spec.width, spec.channels)
        held = held_samples(source, spec=spec) if device.type == "cpu" else None
        # All ranks must decide alike: making the copy is a collective.
        if all(group.gather(held is not None)):
            assert held is not None
            _require_held_labels(held, spec=spec)
        else:
            held = None
        places = None if held is None else held.places
        self._places = None if places is None else torch.from_numpy(places)
        self._images, self._labels = (
            _copied(source, spec=spec, device=device, group=group) if held is None else _rows_of(held)
        )

    def take(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the pixels (one row per sample) and labels of the given samples."""
        rows = samples if self._places is None else self._places[samples]
        return self._images.index_select(0, rows), self._labels.index_select(0, rows)

    def span(self, first: int, stop: int) -> tuple[Tensor, Tensor]:
        """Pixels (one row per sample) and labels of consecutive samples; may be views, so read-only."""
        if self._places is not None:
            return self.take(torch.arange(first, stop))
        return self._images[first:stop], self._labels[first:stop]

    def as_images(self, rows: Tensor) -> Tensor:
        """Rows of pixels as images in channels-last memory format."""
        return channels_last_view(rows.view(self._shape))


def _rows_of(held: HeldSamples) -> list[Tensor]:
    """Tensors that share the arrays' memory, images as rows of pixels."""
    return [torch.from_numpy(held.images).flatten(1), torch.from_numpy(held.labels)]


def _require_held_labels(held: HeldSamples, *, spec: DataSpec) -> None:
    samples = len(held.labels) if held.places is None else len(held.places)
    for chunk in index_chunks(samples, sample_bytes=held.labels[:1].nbytes):
        rows = chunk if held.places is None else held.places[chunk]
        require_labels(held.labels[rows], num_classes=spec.num_classes, may_ignore=spec.ignores_pixels)


def _copied(source: Source, *, spec: DataSpec, device: torch.device, group: ReplicaGroup) -> list[Tensor]:
    """Copies all samples to the device; on a CPU, into memory that the ranks of a host share."""
    pixels = spec.height * spec.width * spec.channels
    one_label = source.fetch(np.zeros(1, dtype=np.int64))[1]
    layouts: list[Layout] = [
        ((len(source), pixels), np.dtype(spec.image_dtype)),
        ((len(source), *one_label.shape[1:]), one_label.dtype),
    ]
    fill = partial(_fill, source=source, spec=spec)
    if device.type == "cpu":
        arrays = shared_arrays(layouts, group=group, fill=lambda empty: fill(_as_tensors(empty)))
        return _as_tensors(arrays)
    tensors = [
        torch.empty(shape, dtype=getattr(torch, dtype.name), device=device) for shape, dtype in layouts
    ]
    fill(tensors)
    return tensors


def _as_tensors(arrays: list[NDArray[Any]]) -> list[Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def _fill(tensors: list[Tensor], *, source: Source, spec: DataSpec) -> None:
    """Copies all samples, images as rows of pixels."""
    rows, all_labels = tensors

    def copy(indices: NDArray[np.int64]) -> NDArray[np.int64]:
        images, labels = source.fetch(indices)
        require_labels(labels, num_classes=spec.num_classes, may_ignore=spec.ignores_pixels)
        require_finite_fetch(images, source=source, indices=indices)
        here = slice(int(indices[0]), int(indices[-1]) + 1)
        rows[here] = torch.from_numpy(images).reshape(-1, rows.shape[1])
        all_labels[here] = torch.from_numpy(labels)
        return indices

    # Files are decoded in parallel threads; a user's own data set may not be thread-safe.
    is_of_files = reads_files(source)
    sample_bytes = max(spec.image_bytes, CHUNK_BYTES // _FILES_AT_A_TIME) if is_of_files else spec.image_bytes
    chunks = index_chunks(len(source), sample_bytes=sample_bytes)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        copied = chain.from_iterable(mapped(threads, copy, chunks) if is_of_files else map(copy, chunks))
        for _ in counted(copied, total=len(source), what="reading samples"):
            pass
