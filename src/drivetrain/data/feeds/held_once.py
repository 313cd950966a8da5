"""Moves in-memory sources into shared memory, so that all ranks of a host use one copy."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.source import ArraySource, DataSplits
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.ranks.shared_memory import Layout, shared_arrays

__all__ = ["hold_once"]

_HELD_FIELDS: dict[type, tuple[str, ...]] = {
    ArraySource: ("images", "labels"),
    HeldMaskedImages: ("images", "masks"),
}
# Attributes in which a wrapping source keeps the source or masked images that it wraps.
_INNER_FIELDS = ("source", "masked")


def hold_once(splits: DataSplits, *, group: ReplicaGroup) -> None:
    """Moves the arrays of in-memory sources into shared memory; a collective, so all ranks must call it."""
    if group.size == 1:
        return
    for holder in _holders(splits):
        names = _HELD_FIELDS[type(holder)]
        own: list[NDArray[Any]] = [getattr(holder, name) for name in names]
        layouts: list[Layout] = [(array.shape, array.dtype) for array in own]
        shared = shared_arrays(layouts, group=group, fill=partial(_copy, source=own))
        for name, array in zip(names, shared, strict=True):
            setattr(holder, name, array)


def _copy(targets: list[NDArray[Any]], *, source: list[NDArray[Any]]) -> None:
    for target, array in zip(targets, source, strict=True):
        np.copyto(target, array)


def _holders(splits: DataSplits) -> list[Any]:
    """All array holders of the splits, each once, in the same order on all ranks (sharing is collective)."""
    found: dict[int, Any] = {}
    for source in (splits.train, splits.validation, splits.test):
        found |= {id(part): part for part in _layers(source) if type(part) in _HELD_FIELDS}
    return list(found.values())


def _layers(source: object) -> Iterator[object]:
    """Yields a source, then the source it wraps, and so on; stops at a cycle."""
    passed: set[int] = set()
    inner: object | None = source
    while inner is not None and id(inner) not in passed:
        yield inner
        passed.add(id(inner))
        inner = next((getattr(inner, name) for name in _INNER_FIELDS if hasattr(inner, name)), None)
