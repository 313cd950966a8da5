"""Compiled files that an interrupted compiler has left unfinished.

torch takes a file that is there for a finished one: every later compilation of the same model would fail, or
die of a library that ends too early.
"""

import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["remove_blamed_code", "remove_damaged_code"]

_LOCKS, _LOCK = "locks", ".lock"
_BINARIES = (".so", ".o")
_ELF = b"\x7fELF"
_COMPILER_FAILED = "CppCompileError"
_PRECOMPILED = "PCH file"
_INCLUDED = re.compile(r"-include (\S+\.h)\b")
_HEADER_BYTES, _IS_64_BIT, _IS_LITTLE_ENDIAN = 64, 2, 1


def remove_damaged_code(folder: Path, *, blamed_by: str = "") -> list[Path]:
    """Removes unfinished files, and libraries that a message blames; returns them.

    What another process is just compiling is left alone: torch holds a lock for each file while it does.
    """
    removed = []
    for path in _files(folder):
        is_blamed = path.suffix in _BINARIES and str(path) in blamed_by
        if not is_blamed and _is_whole(path):
            continue
        with _own_lock(path, folder) as is_ours:
            if is_ours and (is_blamed or not _is_whole(path)) and _remove(path):
                removed.append(path)
    return removed


def remove_blamed_code(folder: Path, message: str) -> list[Path]:
    """Removes what an error of the compiler comes from, where that is a damaged file; returns it.

    A C++ compiler that fails by itself, as at Ctrl-C, would fail again. It cannot read a precompiled header
    that was cut short, though; torch keeps those in the folder for temporary files.
    """
    if _COMPILER_FAILED not in message:
        return remove_damaged_code(folder, blamed_by=message)
    headers = _INCLUDED.findall(message) if _PRECOMPILED in message else []
    return [path for header in set(headers) for path in _remove_precompiled(Path(f"{header}.gch"))]


def _remove_precompiled(path: Path) -> list[Path]:
    with _own_lock(path, path.parent) as is_ours:
        return [path] if is_ours and _remove(path) else []


def _remove(path: Path) -> bool:
    """False where the file is gone, or belongs to another user."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _files(folder: Path) -> Iterator[Path]:
    """Compiled code and what describes it; files whose names begin with a point are still being written.

    Locks are empty by nature, and torch keeps some of them outside of the folder for locks.
    """
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != _LOCKS]
        yield from (
            Path(root, name) for name in names if not name.startswith(".") and not name.endswith(_LOCK)
        )


def _is_whole(path: Path) -> bool:
    try:
        size = path.stat().st_size
        if size == 0 or path.suffix not in _BINARIES or sys.platform != "linux":
            return size > 0
        with path.open("rb") as file:
            return _ends_as_announced(file.read(_HEADER_BYTES), size=size)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _ends_as_announced(header: bytes, *, size: int) -> bool:
    """Whether the table of sections, which comes last, is there (64-bit ELF; others are believed)."""
    if len(header) < _HEADER_BYTES or not header.startswith(_ELF):
        return False
    if header[4] != _IS_64_BIT:
        return True
    order = "<" if header[5] == _IS_LITTLE_ENDIAN else ">"
    (offset,) = struct.unpack_from(f"{order}Q", header, 0x28)
    entry_bytes, entries = struct.unpack_from(f"{order}2H", header, 0x3A)
    return bool(offset > 0 and offset + entry_bytes * entries <= size)


@contextmanager
def _own_lock(path: Path, folder: Path) -> Iterator[bool]:
    """The lock under which torch compiles this file; False where another process holds it.

    False, too, where the lock belongs to a user who shares it with nobody.
    """
    with ExitStack() as opened:
        is_ours = False
        with suppress(OSError):
            file = opened.enter_context(_lock_of(path, folder).open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        yield is_ours


def _lock_of(path: Path, folder: Path) -> Path:
    locks = folder / _LOCKS
    locks.mkdir(exist_ok=True)
    return locks / f"{path.name.partition('.')[0]}{_LOCK}"
