"""Compiles parts of a training program, with a fallback to uncompiled code, and removes damaged cache files.

Whether a part runs compiled is decided after the program is built, as a measurement compares both. Compiled
files are kept in the cache folder of the user, so that the next process finds them.
"""

import fcntl
import os
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar

import torch

from drivetrain.core.progress import shown
from drivetrain.devices.code_folder import use_code_folder

__all__ = [
    "Compilable",
    "CompiledParts",
    "keep_compiled_code",
    "remove_blamed_code",
    "remove_damaged_code",
    "repaired_once",
]

_LOCKS, _LOCK = "locks", ".lock"
_BINARIES = (".so", ".o")
_ELF = b"\x7fELF"
_COMPILER_FAILED = "CppCompileError"
_PRECOMPILED = "PCH file"
_INCLUDED = re.compile(r"-include (\S+\.h)\b")
_HEADER_BYTES, _IS_64_BIT, _IS_LITTLE_ENDIAN = 64, 2, 1
_COMPILER_MODULES = ("torch._dynamo", "torch._inductor", "torch._functorch")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


# torch takes any file in its cache for a finished one. If a compiler was interrupted, every later compilation
# of the same model would fail, or crash on a truncated library. Hence the checks below.


def remove_damaged_code(folder: Path, *, blamed_by: str = "") -> list[Path]:
    """Removes unfinished files, and libraries named in the error `blamed_by`; returns them.

    Files that another process is compiling are left alone: torch holds a lock on each of them.
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
    """Removes the damaged files that caused an error of the compiler; returns them.

    If the C++ compiler itself failed, for example after Ctrl-C, nothing is removed, as it would fail again.
    The exception is a truncated precompiled header; torch keeps those in the folder for temporary files.
    """
    if _COMPILER_FAILED not in message:
        return remove_damaged_code(folder, blamed_by=message)
    headers = _INCLUDED.findall(message) if _PRECOMPILED in message else []
    return [path for header in set(headers) for path in _remove_precompiled(Path(f"{header}.gch"))]


def _remove_precompiled(path: Path) -> list[Path]:
    with _own_lock(path, path.parent) as is_ours:
        return [path] if is_ours and _remove(path) else []


def _remove(path: Path) -> bool:
    """Removes a file; False if it is gone or belongs to another user."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _files(folder: Path) -> Iterator[Path]:
    """Compiled code and its descriptions; files whose names begin with a dot are still being written.

    Lock files are always empty, so they are skipped; torch keeps some of them outside the folder for locks.
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
    """Whether the section table, the end of an ELF file, is there; only 64-bit files are checked."""
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
    """Takes the lock under which torch compiles this file; False if another process holds it.

    Also False if the lock belongs to another user and cannot be opened.
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


class Compilable(Generic[Arguments, Result]):
    """A function that runs uncompiled until it is switched on; `problem` says why compiling failed.

    `whole` refuses graph breaks: if values decide what is computed, the compiler would make many pieces and
    compile them again and again. `around` is entered around every compiled call and must undo what a failed
    call left behind, as the function then runs again uncompiled.
    """

    def __init__(
        self,
        function: Callable[Arguments, Result],
        *,
        what: str,
        whole: bool = False,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._function = function
        self._what = what
        self._whole = whole
        self._around = around
        self._compiled: Callable[Arguments, Result] | None = None
        self._has_run = False
        self.problem: str | None = None

    @property
    def is_on(self) -> bool:
        """Whether calls run compiled; the first call compiles."""
        return self._compiled is not None

    def switched_on(self) -> Self:
        """Switches compilation on and returns self."""
        self.switch(True)
        return self

    def switch(self, on: bool) -> None:
        """Switches compilation on or off; a function that failed to compile stays uncompiled."""
        self._compiled = None
        self._has_run = False
        if not on or self.problem is not None:
            return
        try:
            self._compiled = torch.compile(self._function, dynamic=False, fullgraph=self._whole)
        except Exception as error:
            self._give_up(error)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if self._compiled is None:
            return self._function(*args, **kwargs)
        try:
            call = partial(self._run, self._compiled, *args, **kwargs)
            if self._has_run:
                return repaired_once(call)
            # The compiler works for up to minutes, and torch does not say how far it is.
            with shown(f"compiling {self._what}"):
                keep_compiled_code()
                result = repaired_once(call)
            self._has_run = True
            return result
        except Exception as error:
            # Code that has run before fails because of its data, unless it was being compiled again for
            # another shape.
            if self._has_run and not _is_of_compiler(error):
                raise
            self._give_up(error)
        return self._function(*args, **kwargs)

    def _run(
        self,
        compiled: Callable[Arguments, Result],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        with self._around():
            return compiled(*args, **kwargs)

    def _give_up(self, error: Exception) -> None:
        self._compiled = None
        self.problem = f"{self._what} runs uncompiled, because compiling it failed: {_first_words(error)}"


class CompiledParts:
    """The compilable parts of one program, which are switched together; the first is the model."""

    def __init__(self, parts: Iterable[Compilable[Any, Any]] = ()) -> None:
        self._parts = tuple(parts)

    @property
    def is_on(self) -> bool:
        """Whether any part runs compiled."""
        return any(part.is_on for part in self._parts)

    @property
    def problems(self) -> list[str]:
        """Why parts that were switched on run uncompiled, a sentence each."""
        return [part.problem for part in self._parts if part.problem is not None]

    @property
    def failure(self) -> str | None:
        """Why the first part could not be compiled."""
        return self._parts[0].problem if self._parts else None

    def switch(self, on: bool) -> None:
        """Switches compilation of all parts on or off."""
        for part in self._parts:
            part.switch(on)


_looked_through: set[Path] = set()


def keep_compiled_code() -> None:
    """Selects the cache folder that fits this process, before the compiler runs.

    Files that an interrupted process left unfinished there are removed first.
    """
    folder = use_code_folder()
    if folder not in _looked_through:
        _looked_through.add(folder)
        remove_damaged_code(folder)


def repaired_once(call: Callable[[], Result]) -> Result:
    """Calls compiled code; if a damaged file made it fail, removes the file and tries once more."""
    try:
        return call()
    except Exception as error:
        # Another process may have been killed since this one checked the folder.
        if not remove_blamed_code(use_code_folder(), str(error)):
            raise
    return call()


def _is_of_compiler(error: Exception) -> bool:
    return any(kind.__module__.startswith(_COMPILER_MODULES) for kind in type(error).__mro__)


def _first_words(error: Exception) -> str:
    """The first line of an error of the compiler, which may be pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])
