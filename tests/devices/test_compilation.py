"""Parts that are compiled, and go on as they are where that fails."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from drivetrain.devices.code_folder import CACHE_VARIABLE, code_key, cpp_compiler
from drivetrain.devices.compilation import Compilable, CompiledParts, keep_compiled_code
from drivetrain.inference.model.optimised import build_inference
from drivetrain.passes.forward import Precision
from tests.core.watcher import watched
from tests.devices.stand_in_compiler import CompilerError, compile_by

# What tests of a session compile, all of them find.
SESSIONS_CODE = os.environ[CACHE_VARIABLE]


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


def test_the_first_call_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(monkeypatch, lambda function, number: function(number))
    part = Compilable(double, what="the model")
    assert watched(lambda: part(3)) == []
    part.switch(True)
    assert watched(lambda: part(3)) == ["compiling the model of None", "end"]
    assert watched(lambda: part(3)) == []
    part.switch(True)
    assert watched(lambda: part(3)) == ["compiling the model of None", "end"]


def test_a_compiler_that_cannot_be_started_leaves_the_part_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object, **options: bool) -> None:
        raise RuntimeError("Python 4 is not supported\nand pages of this")

    monkeypatch.setattr(torch, "compile", refuse)
    part = Compilable(double, what="the optimiser").switched_on()
    assert (part(3), part.is_on) == (6, False)
    assert part.problem == (
        "the optimiser runs uncompiled, because compiling it failed: RuntimeError: Python 4 is not supported"
    )


def test_a_first_call_that_fails_goes_on_as_written_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compile_by(monkeypatch, failing(CompilerError("no C++ compiler")))
    part = Compilable(double, what="the model").switched_on()
    assert (part(3), part.is_on) == (6, False)
    assert (
        part.problem
        == "the model runs uncompiled, because compiling it failed: CompilerError: no C++ compiler"
    )
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


def test_compiled_code_is_kept_where_only_processes_like_this_one_look(tmp_path: Path) -> None:
    keep_compiled_code()
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "drivetrain" / "compiled" / code_key())


def test_a_first_call_removes_what_an_interrupted_process_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "drivetrain" / "compiled" / code_key() / "ab" / "cab.so"
    left.parent.mkdir(parents=True)
    left.touch()
    compile_by(monkeypatch, lambda function, number: function(number) + left.exists())
    assert Compilable(double, what="it").switched_on()(3) == 6


def test_a_call_that_fails_of_a_damaged_file_is_compiled_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file came after the folder had been looked through, from a process that was killed since."""
    keep_compiled_code()
    library = Path(os.environ[CACHE_VARIABLE], "ab", "cab.so")
    library.parent.mkdir(parents=True)
    library.touch()

    def run(function: Callable[..., Any], number: int) -> Any:
        if library.exists():
            raise CompilerError(f"OSError: {library}: file too short")
        return -function(number)

    compile_by(monkeypatch, run)
    part = Compilable(double, what="it").switched_on()
    assert (part(3), part.is_on, part.problem) == (-6, True, None)


@pytest.mark.skipif(shutil.which(cpp_compiler()) is None, reason="the compiler needs one of C++")
def test_a_library_that_a_kill_cut_short_is_built_again() -> None:
    """Without it every later compilation of the same model fails, and the model runs as it is written."""

    def compile_once(*paths: str) -> list[str]:
        command = [sys.executable, "-m", "tests.devices.compiles_once", *paths]
        variables = {**os.environ, CACHE_VARIABLE: SESSIONS_CODE}
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        return ended.stdout.split("\n")[:-1]

    said, library = compile_once()
    assert said == "compiled"
    assert compile_once(library) == ["compiled"]
    assert Path(library).stat().st_size > 0


def test_a_model_compiled_for_inference_keeps_its_code_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forward)
    run = build_inference(
        nn.Identity(), precision=Precision(compute_dtype=torch.float32, device_type="cpu"), compiles=True
    )
    run(torch.zeros(1, 1, 2, 2))
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "drivetrain" / "compiled" / code_key())
