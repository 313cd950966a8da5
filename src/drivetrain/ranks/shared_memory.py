"""Arrays that all ranks of a host share, instead of a copy in each."""

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.ranks.host import host_key
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["Layout", "shared_arrays"]

Layout = tuple[tuple[int, ...], np.dtype[Any]]


def shared_arrays(
    layouts: Sequence[Layout], *, group: ReplicaGroup, fill: Callable[[list[NDArray[Any]]], None]
) -> list[NDArray[Any]]:
    """Arrays that the first rank of each host fills and the other ranks map; a collective.

    Nobody may write to them afterwards. The memory has no name in the file system, so it is freed with the
    last rank that maps it, even if ranks are killed.
    """
    hosts = group.gather(host_key())
    if len(set(hosts)) == group.size:
        own = [np.empty(shape, dtype=dtype) for shape, dtype in layouts]
        fill(own)
        return own
    first = hosts.index(hosts[group.rank])
    if first != group.rank:
        # The paths arrive only after the first rank has filled the memory.
        arrays = _mapped(group.gather(None)[first], layouts)
        group.barrier()
        return arrays
    with _memory_files(len(layouts)) as paths:
        arrays = _mapped(paths, layouts)
        fill(arrays)
        group.gather(paths)
        group.barrier()
    return arrays


@contextmanager
def _memory_files(count: int) -> Iterator[list[str]]:
    """Files in memory, as paths that other ranks can open while the block runs."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="drivetrain-") as folder:
            yield [str(Path(folder) / str(number)) for number in range(count)]
        return
    handles = [os.memfd_create("drivetrain-data") for _ in range(count)]
    try:
        yield [f"/proc/{os.getpid()}/fd/{handle}" for handle in handles]
    finally:
        for handle in handles:
            os.close(handle)


def _mapped(paths: Sequence[str], layouts: Sequence[Layout]) -> list[NDArray[Any]]:
    return [_map(path, layout) for path, layout in zip(paths, layouts, strict=True)]


def _map(path: str, layout: Layout) -> NDArray[Any]:
    shape, dtype = layout
    size = max(1, math.prod(shape) * dtype.itemsize)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size < size:
            os.ftruncate(handle, size)
        memory = mmap.mmap(handle, size)
    finally:
        os.close(handle)
    return np.frombuffer(memory, dtype=dtype, count=math.prod(shape)).reshape(shape)
