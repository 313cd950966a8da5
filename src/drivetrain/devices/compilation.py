"""Parts of a training program that can be compiled and go on as they are where that fails; damaged compiled
files are removed.

Which part runs how is decided after the program is built: a measurement compares both. The compiler's own
files lie in the user's cache folder, so that the next process finds them.
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


# Compiled files that an interrupted compiler has left unfinished.
#
# torch takes a file that is there for a finished one: every later compilation of the same model would
# fail, or die of a library that ends too early.


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


class Compilable(Generic[Arguments, Result]):
    """A function that runs as it is written until it is switched on; `problem` says why it still does then.

    `whole` is for functions that pay only in one piece: where values decide what is computed, the compiler
    would make many pieces and compile them again and again. `around` is entered around every compiled call,
    and must undo what a call left behind that failed.
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
        """Whether calls run compiled; the first one compiles."""
        return self._compiled is not None

    def switched_on(self) -> Self:
        """The same, compiled from the start."""
        self.switch(True)
        return self

    def switch(self, on: bool) -> None:
        """From now on compiled, or as it is written; a part that could not be compiled stays as it is."""
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
            if not self._has_run:
                keep_compiled_code()
            result = repaired_once(partial(self._run, self._compiled, *args, **kwargs))
            self._has_run = True
            return result
        except Exception as error:
            # Code that has run before fails of what it computes, unless it is compiled anew.
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
        self.problem = f"{self._what} runs uncompiled, as compiling it failed: {_first_words(error)}"


class CompiledParts:
    """The parts of one program, which are switched together; the first one matters most."""

    def __init__(self, parts: Iterable[Compilable[Any, Any]] = ()) -> None:
        self._parts = tuple(parts)

    @property
    def is_on(self) -> bool:
        """Whether any part runs compiled."""
        return any(part.is_on for part in self._parts)

    @property
    def problems(self) -> list[str]:
        """Why parts that were switched on run as they are written, a sentence each."""
        return [part.problem for part in self._parts if part.problem is not None]

    @property
    def failure(self) -> str | None:
        """Why the first part could not be compiled."""
        return self._parts[0].problem if self._parts else None

    def switch(self, on: bool) -> None:
        """From now on all parts run compiled, or none."""
        for part in self._parts:
            part.switch(on)


_looked_through: set[Path] = set()


def keep_compiled_code() -> None:
    """Has the compiler, before it works, keep its files where only processes like this one find them.

    What an interrupted process left unfinished there is removed first.
    """
    folder = use_code_folder()
    if folder not in _looked_through:
        _looked_through.add(folder)
        remove_damaged_code(folder)


def repaired_once(call: Callable[[], Result]) -> Result:
    """What a call of compiled code gives; where it fails of a damaged file, that is compiled once more."""
    try:
        return call()
    except Exception as error:
        # Another process may have been killed since this one looked through the folder.
        if not remove_blamed_code(use_code_folder(), str(error)):
            raise
    return call()


def _is_of_compiler(error: Exception) -> bool:
    return any(kind.__module__.startswith(_COMPILER_MODULES) for kind in type(error).__mro__)


def _first_words(error: Exception) -> str:
    """The compiler's messages go on for pages; their beginning says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])
