"""Compiled code is found again by processes like the one that made it, and by no other."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from drivetrain.devices import code_folder
from drivetrain.devices.code_folder import (
    CACHE_VARIABLE,
    TRITON_VARIABLE,
    code_key,
    code_marks,
    cpp_compiler,
    use_code_folder,
    using_code_folder,
)
from drivetrain.devices.processor import Processor


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (CACHE_VARIABLE, TRITON_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_the_folder_lies_in_the_users_cache_and_says_what_it_is_for(tmp_path: Path) -> None:
    folder = use_code_folder()
    assert folder == tmp_path / "drivetrain" / "compiled" / code_key()
    assert os.environ[CACHE_VARIABLE] == str(folder)
    assert TRITON_VARIABLE not in os.environ
    assert json.loads((folder / "made-for.json").read_text()) == code_marks()
    assert use_code_folder() == folder


def _variable(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setenv(name, "AVX")


def _returning(place: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(place, name, lambda *_: value)


@pytest.mark.parametrize(
    "change",
    [
        _variable("ATEN_CPU_CAPABILITY"),
        _variable("ONEDNN_MAX_CPU_ISA"),
        _variable("DNNL_MAX_CPU_ISA"),
        _returning(torch.backends.cpu, "get_cpu_capability", "another width"),
        _returning(torch, "get_num_threads", 77),
        _returning(
            code_folder, "read_processor", Processor(name="", microcode="", features=frozenset({"mmx"}))
        ),
        _returning(code_folder, "_version_of", "another compiler"),
        _returning(code_folder, "_accelerator_in_use", "cuda Some device 12.8"),
        _returning(platform, "python_version", "3.99"),
        _returning(platform, "libc_ver", ("glibc", "1.0")),
        lambda patch: patch.setattr(torch, "__version__", "2.99"),
    ],
)
def test_whatever_code_depends_on_gives_another_folder(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = use_code_folder()
    change(monkeypatch)
    after = use_code_folder()
    assert after != before
    assert after.parent == before.parent


def test_a_folder_that_the_user_names_gets_one_for_each_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine"))
    monkeypatch.setenv(TRITON_VARIABLE, str(tmp_path / "triton"))
    assert use_code_folder() == tmp_path / "mine" / code_key()
    assert os.environ[TRITON_VARIABLE] == str(tmp_path / "triton" / code_key())


def test_the_default_that_torch_sets_itself_is_nobodys_wish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, default_cache_dir())
    assert use_code_folder() == tmp_path / "drivetrain" / "compiled" / code_key()


def test_a_process_takes_its_own_folder_in_place_of_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = use_code_folder()
    monkeypatch.setenv(TRITON_VARIABLE, str(parents / "triton" / "0"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    own = use_code_folder()
    assert own == parents.parent / code_key() != parents
    assert os.environ[TRITON_VARIABLE] == str(own / "triton" / "0")


def test_unlike_processors_have_unlike_folders() -> None:
    """What torch itself says of the processor is fixed at its first use in a process."""

    def key_of(capability: str) -> str:
        ask = "from drivetrain.devices.code_folder import code_key; print(code_key())"
        variables = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
        return subprocess.run(
            [sys.executable, "-c", ask], env=variables, capture_output=True, text=True, check=True
        ).stdout.strip()

    keys = [key_of(capability) for capability in ("default", "avx2")]
    assert keys[0] != keys[1]


def test_the_compiler_is_the_one_that_the_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert cpp_compiler() == "no-such-compiler"
    assert code_marks()["compiler"] == ""


def _program(path: Path, *, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho {says} >&2\n")
    path.chmod(0o755)
    return path


def test_a_compiler_is_known_behind_another_program_and_with_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = _program(tmp_path / "wrapper", says="keeps results")
    one, other = (_program(tmp_path / name, says="version 1") for name in ("one", "other"))
    marks = []
    for command in (f"{wrapper} {one}", f"{wrapper} {other}", f"{other}", f"{other} -m64", f"{other} '"):
        monkeypatch.setenv("CXX", command)
        marks.append(code_marks()["compiler"])
    assert marks[-1] == ""
    assert all(marks[:-1])
    assert len(set(marks)) == 5


def test_a_compiler_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setenv("CXX", str(_program(tmp_path / "silent", says="nothing")))
    monkeypatch.setattr(subprocess, "run", hang)
    assert code_marks()["compiler"] == ""


def test_a_new_folder_takes_the_place_of_those_that_nobody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for threads in (71, 72, 73):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        folders.append(use_code_folder())
    foreign = folders[0].parent / "foreign"
    foreign.mkdir()
    years_ago = time.time() - 2 * 365 * 24 * 3600
    for folder in (*folders[:2], foreign):
        (folder / "made-for.json").touch()
        os.utime(folder / "made-for.json", (years_ago, years_ago))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 72)
    assert use_code_folder() == folders[1]
    assert folders[0].exists()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 74)
    kept = {foreign, *folders[1:], use_code_folder()}
    assert set(foreign.parent.iterdir()) == kept


@pytest.mark.parametrize("before", [None, "mine"])
def test_the_folder_is_used_for_a_while(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = None if before is None else str(tmp_path / before)
    if named is not None:
        monkeypatch.setenv(CACHE_VARIABLE, named)
    with using_code_folder():
        assert Path(os.environ[CACHE_VARIABLE]).name == code_key()
        os.environ[TRITON_VARIABLE] = "as torch does"
    assert (os.environ.get(CACHE_VARIABLE), os.environ.get(TRITON_VARIABLE)) == (named, None)
