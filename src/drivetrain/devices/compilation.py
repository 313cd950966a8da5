"""Parts of a training program that can be compiled, and go on as they are where that fails.

Which part runs how is decided after the program is built: a measurement compares both. The compiler's own
files lie in the user's cache folder, so that the next process finds them.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar

import torch

from drivetrain.devices.code_folder import use_code_folder
from drivetrain.devices.damaged_code import remove_blamed_code, remove_damaged_code

__all__ = ["Compilable", "CompiledParts", "keep_compiled_code", "repaired_once"]

_COMPILER_MODULES = ("torch._dynamo", "torch._inductor", "torch._functorch")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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
