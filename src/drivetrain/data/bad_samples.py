"""Unreadable samples: refused, or left out while the order of all other samples stays the same."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import counted
from drivetrain.data.files.decode import BadSampleError, naming_bad_sample
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.source import BadSample, DataSplits, Source, SubsetSource
from drivetrain.data.sources.synthetic_em import SyntheticMicrographs
from drivetrain.data.training_tiles import TileSource, UniformSource

FileSource = ImageSource | UniformSource | TileSource

__all__ = [
    "bad_indices",
    "find_bad",
    "reads_files",
    "refusing_bad_samples",
    "settle_bad_samples",
    "without_bad",
]

_EMPTY = "the file is empty"
_MOST_NAMED = 10


def settle_bad_samples(splits: DataSplits, *, policy: str) -> DataSplits:
    """Applies --on-bad-sample: `error` refuses empty or missing files, `skip` decodes all and marks bad ones.

    Marked samples keep their places among the training samples, where the order gives them no weight; among
    validation and test samples they are not there.
    """
    if not _image_sources(splits):
        return _with_idle_warning(splits) if policy == "skip" else splits
    if policy == "error":
        _refuse_empty_files(splits)
        return splits
    train, bad = _marked(splits.train, split="train")
    if len(bad) == len(train):
        raise BadInputError(f"No training sample can be read: {_described(bad)}.")
    validation, bad_validation = _cleaned(splits.validation, split="validation")
    test, bad_test = _cleaned(splits.test, split="test")
    found = (*bad, *bad_validation, *bad_test)
    warnings = [f"--on-bad-sample skip leaves out {len(found)} samples: {_described(found)}."]
    return replace(
        splits,
        train=train,
        validation=validation,
        test=test,
        warnings=[*splits.warnings, *(warnings if found else [])],
        bad_samples=found,
    )


@contextmanager
def refusing_bad_samples() -> Iterator[None]:
    """Before the first update, a sample that cannot be read is bad input, whoever meets it."""
    try:
        yield
    except BadSampleError as error:
        raise BadInputError(str(error)) from error


def bad_indices(source: Source) -> NDArray[np.int64]:
    """The samples of a source that are marked as bad, for the order of the training samples."""
    if isinstance(source, SubsetSource):
        return np.flatnonzero(np.isin(source.indices, bad_indices(source.source)))
    return source.bad if isinstance(source, FileSource) else np.empty(0, dtype=np.int64)


def without_bad(source: Source) -> Source:
    """The samples that are not marked as bad, for measuring."""
    bad = bad_indices(source)
    if len(bad) == 0:
        return source
    return SubsetSource(source, np.setdiff1d(np.arange(len(source), dtype=np.int64), bad))


def reads_files(source: Source) -> bool:
    """Whether the samples of a source lie in image files of their own, which threads may read."""
    return _flattened(source)[0] is not None


def find_bad(source: Source, *, split: str) -> list[BadSample]:
    """Decodes every sample of a source of image files; returns those that cannot be."""
    inner, indices = _flattened(source)
    if inner is None:
        return []

    def check(place: int) -> BadSample | None:
        try:
            inner.check(int(indices[place]))
        except BadSampleError as error:
            return BadSample(split=split, index=place, name=error.name, reason=error.reason)
        return None

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        checks = counted(
            mapped(threads, check, range(len(indices))),
            total=len(indices),
            what=f"checking {split} images",
        )
        return [bad for bad in checks if bad is not None]


def _marked(source: Source, *, split: str) -> tuple[Source, list[BadSample]]:
    bad = find_bad(source, split=split)
    inner, indices = _flattened(source)
    if inner is None or not bad:
        return source, bad
    marked = replace(inner, bad=np.unique(indices[[sample.index for sample in bad]]))
    return SubsetSource(marked, indices), bad


def _cleaned(source: Source | None, *, split: str) -> tuple[Source | None, list[BadSample]]:
    if source is None:
        return None, []
    marked, bad = _marked(source, split=split)
    left = without_bad(marked)
    return (left if len(left) else None), bad


def _flattened(source: Source) -> tuple[FileSource | None, NDArray[np.int64]]:
    """The image files behind a source, and which of them it takes in which order."""
    if isinstance(source, SubsetSource):
        inner, indices = _flattened(source.source)
        return inner, indices[source.indices]
    indices = np.arange(len(source), dtype=np.int64)
    return (source if _is_of_files(source) else None), indices


def _is_of_files(source: Source) -> TypeGuard[FileSource]:
    if isinstance(source, UniformSource | TileSource):
        return not isinstance(source.masked, HeldMaskedImages | SyntheticMicrographs)
    return isinstance(source, ImageSource)


def _image_sources(splits: DataSplits) -> list[tuple[FileSource, NDArray[np.int64]]]:
    parts = (splits.train, splits.validation, splits.test)
    flattened = [_flattened(source) for source in parts if source is not None]
    return [(inner, indices) for inner, indices in flattened if inner is not None]


def _refuse_empty_files(splits: DataSplits) -> None:
    for inner, indices in _image_sources(splits):
        if not isinstance(inner, ImageSource):
            continue  # Files with masks were looked at when they were found.
        for index in counted(indices.tolist(), total=len(indices), what="looking for empty files"):
            with refusing_bad_samples(), naming_bad_sample(inner.store.name(index)):
                if inner.store.stored_bytes(index) == 0:
                    raise ValueError(_EMPTY)


def _with_idle_warning(splits: DataSplits) -> DataSplits:
    warning = "--on-bad-sample skip has no effect: the samples do not come from separate image files."
    return replace(splits, warnings=[*splits.warnings, warning])


def _described(bad: Iterable[BadSample]) -> str:
    return first_names([f"{sample.name} ({sample.reason})" for sample in bad], most=_MOST_NAMED)
