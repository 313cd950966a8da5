"""One process at a time works on a run directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from drivetrain.core.errors import BadInputError

_held: set[FileIO] = set()


@contextmanager
def hold_lock(directory: Path) -> Iterator[None]:
    """Holds the directory's lock; the system frees it however the process ends, whoever it forked."""
    with FileIO(directory / ".lock", "w") as file:
        _held.add(file)
        try:
            _lock(file, directory=directory)
            yield
        finally:
            _held.discard(file)


def _lock(file: FileIO, *, directory: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadInputError(
            f"--output-dir {directory} is in use by another process; wait for it or name another directory."
        ) from None


def _leave_locks_to_parent() -> None:
    """A lock is held as long as any copy of its descriptor is open; closing one here does not unlock it."""
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
