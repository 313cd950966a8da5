"""Parts that are compiled, and go on as they are where that fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain.program.compilation import CACHE_VARIABLE, Compilable, CompiledParts, keep_compiled_code

from .stand_in_compiler import CompilerError, compile_by


def double(number: int) -> int:
    return 2 * number


def failing(error: Exception, *, from_call: int = 1) -> Callable[..., Any]:
    """Compiled code that raises from one of its calls on."""
    calls: list[int] = []

    def run(function: Callable[..., Any], *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) >= from_call:
            raise error
        return function(*arguments)

    return run


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, "")
    monkeypatch.delenv(CACHE_VARIABLE)


def test_nothing_is_compiled_before_it_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_by(monkeypatch, lambda function, number: -function(number))
    part = Compilable(double, what="it")
    assert (part(3), part.is_on, compiled) == (6, False, [])
    part.switch(True)
    assert (part(3), part.is_on, compiled) == (-6, True, [double])
    part.switch(False)
    assert (part(3), part.is_on) == (6, False)


def test_a_compiler_that_cannot_be_started_leaves_the_part_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object, **options: bool) -> None:
        raise RuntimeError("Python 4 is not supported\nand pages of this")

    monkeypatch.setattr(torch, "compile", refuse)
    part = Compilable(double, what="the optimiser").switched_on()
    assert (part(3), part.is_on) == (6, False)
    assert part.problem == (
        "the optimiser runs uncompiled, as compiling it failed: RuntimeError: Python 4 is not supported"
    )


def test_a_first_call_that_fails_goes_on_as_written_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compile_by(monkeypatch, failing(CompilerError("no C++ compiler")))
    part = Compilable(double, what="the model").switched_on()
    assert (part(3), part.is_on) == (6, False)
    assert part.problem == "the model runs uncompiled, as compiling it failed: CompilerError: no C++ compiler"
    part.switch(True)
    assert (part(4), part.is_on, len(compiled)) == (8, False, 1)


def test_later_errors_are_the_callers_unless_they_come_from_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_by(monkeypatch, failing(ValueError("of the model"), from_call=2))
    part = Compilable(double, what="it").switched_on()
    assert part(3) == 6
    with pytest.raises(ValueError, match="of the model"):
        part(3)
    assert part.problem is None
    compile_by(monkeypatch, failing(CompilerError("another shape"), from_call=2))
    part.switch(True)
    assert [part(3), part(3), part.is_on] == [6, 6, False]


def test_what_is_around_a_call_is_left_before_it_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        seen.append("begins")
        try:
            yield
        except CompilerError:
            seen.append("fails")
            raise

    compile_by(monkeypatch, failing(CompilerError()))
    part = Compilable(lambda: seen.append("runs"), what="it", around=around).switched_on()
    part()
    part()
    assert seen == ["begins", "fails", "runs", "runs"]
    assert part.problem is not None
    assert part.problem.endswith("failed: CompilerError")


def test_parts_are_switched_together_and_say_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [Compilable(double, what="one"), Compilable(double, what="two")]
    together = CompiledParts(parts)
    assert (together.is_on, together.problems) == (False, [])

    def fail_once(function: Callable[..., Any], number: int) -> Any:
        if number == 0:
            raise CompilerError("nought")
        return function(number)

    compile_by(monkeypatch, fail_once)
    together.switch(True)
    assert [parts[0](0), parts[1](1)] == [0, 2]
    assert (together.is_on, len(together.problems)) == (True, 1)
    assert together.problems[0].startswith("one runs uncompiled")
    assert together.failure == together.problems[0]
    together.switch(False)
    assert not together.is_on
    assert CompiledParts().failure is None


def test_some_parts_are_compiled_in_one_piece_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch, "compile", lambda function, *, dynamic, fullgraph: asked.append(fullgraph))
    Compilable(double, what="one").switched_on()
    Compilable(double, what="two", whole=True).switched_on()
    assert asked == [False, True]


def test_compiled_code_is_kept_in_the_cache_folder_unless_a_user_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_compiled_code()
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "drivetrain" / "compiled")
    monkeypatch.setenv(CACHE_VARIABLE, "elsewhere")
    keep_compiled_code()
    assert os.environ[CACHE_VARIABLE] == "elsewhere"
