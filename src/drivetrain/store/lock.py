"""The lock of a run directory: only one process at a time may write to it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from drivetrain.core.errors import BadInputError

_held: set[FileIO] = set()


@contextmanager
def hold_lock(directory: Path, *, option: str = "--output-dir") -> Iterator[None]:
    """Holds the lock of a directory; the kernel releases it however the process ends."""
    with FileIO(directory / ".lock", "w") as file:
        _held.add(file)
        try:
            _lock(file, directory=directory, option=option)
            yield
        finally:
            _held.discard(file)


def _lock(file: FileIO, *, directory: Path, option: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BadInputError(
            f"{option} {directory} is in use by another process; wait for it or name another directory."
        ) from None


def held_locks() -> frozenset[int] | None:
    """The inodes of files that a process of this host has locked; None where the kernel does not tell.

    Asking by taking the lock for a moment could turn away a run that starts in that moment.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines]
    return frozenset(int(field[5].rpartition(":")[2]) for field in fields if field[1:2] == ["FLOCK"])


def is_among(directory: Path, held: frozenset[int] | None) -> bool:
    """Whether the lock of a directory is one of those that are known to be held."""
    try:
        return held is not None and (directory / ".lock").stat().st_ino in held
    except OSError:
        return False


def is_locked(directory: Path) -> bool:
    """Whether a process of this host holds the lock of a directory."""
    held = held_locks()
    return _is_refused(directory / ".lock") if held is None else is_among(directory, held)


def _is_refused(lock: Path) -> bool:
    try:
        with FileIO(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _leave_locks_to_parent() -> None:
    """Closes inherited lock files in a forked child.

    flock holds a lock while any copy of the descriptor is open, so a child that outlives its parent (such as
    a loader worker) would keep the directory locked. Closing a copy does not release the lock of the parent.
    """
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
