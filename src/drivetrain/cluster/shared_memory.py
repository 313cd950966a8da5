"""One piece of memory for all ranks of a host, instead of a copy in each."""

import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from drivetrain.cluster.replica_group import ReplicaGroup

__all__ = ["shared_tensors"]

_MEMORY_FILES = Path("/dev/shm")


Layout = tuple[tuple[int, ...], torch.dtype]


def shared_tensors(
    layouts: Sequence[Layout], *, group: ReplicaGroup, fill: Callable[[list[Tensor]], None]
) -> list[Tensor]:
    """Tensors on the CPU that the first rank of each host fills and the others see; a collective.

    Nobody may write to them after that. The memory is given back when the last rank lets go of it.
    """
    if max(group.gather(group.local_size)) == 1:
        own = [torch.empty(shape, dtype=dtype) for shape, dtype in layouts]
        fill(own)
        return own
    leads = group.local_rank == 0
    paths = [_new_file() for _ in layouts] if leads else None
    try:
        if paths is not None:
            fill(_mapped(paths, layouts))
        # The others hear of the files once they are full.
        tensors = _mapped(_paths_on_this_host(paths, group), layouts)
        group.barrier()
    finally:
        for path in paths or ():
            path.unlink()
    return tensors


def _new_file() -> Path:
    folder = _MEMORY_FILES if _MEMORY_FILES.is_dir() and os.access(_MEMORY_FILES, os.W_OK) else None
    handle, name = tempfile.mkstemp(prefix="drivetrain-", dir=folder)
    os.close(handle)
    return Path(name)


def _paths_on_this_host(paths: list[Path] | None, group: ReplicaGroup) -> list[Path]:
    """The files that the first rank of this host made."""
    host = socket.gethostname()
    return next(files for name, files in group.gather((host, paths)) if name == host and files)


def _mapped(paths: list[Path], layouts: Sequence[Layout]) -> list[Tensor]:
    return [
        torch.from_file(str(path), shared=True, size=torch.Size(shape).numel(), dtype=dtype).view(shape)
        for path, (shape, dtype) in zip(paths, layouts, strict=True)
    ]
