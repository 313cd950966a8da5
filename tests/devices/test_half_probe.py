"""The child process may live, refuse, die or hang; answers are kept, and a cache that fails is no error."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivetrain.core.cache_folder import cache_folder
from drivetrain.devices import cpu_half as half_probe
from drivetrain.devices.cpu_half import Verdict, probe_half_types

# Dies of bfloat16 unless oneDNN is held to older instructions, as a machine does that forbids its units.
TRAPPED = """\
import os, signal, sys
with open(os.environ["PROBE_LOG"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
for kind in sys.argv[1:]:
    if kind == "bfloat16" and not os.environ.get("ONEDNN_MAX_CPU_ISA"):
        os.kill(os.getpid(), signal.SIGILL)
    print(kind, "works", flush=True)
"""

Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a program in place of the real one, with an empty cache; returns the log of its calls."""

    def put(program: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(program)
        monkeypatch.setattr(half_probe, "_PROGRAM", path)
        return tmp_path / "log"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PROBE_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    probe_half_types.cache_clear()
    yield put
    probe_half_types.cache_clear()


def _calls(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_a_death_is_put_down_to_the_type_that_caused_it(install: Install) -> None:
    log = install(TRAPPED)
    assert probe_half_types() == {"bfloat16": Verdict.DIES, "float16": Verdict.WORKS}
    assert _calls(log) == ["bfloat16 float16", "float16"]


def test_older_instructions_are_asked_for_apart(install: Install) -> None:
    log = install(TRAPPED)
    assert probe_half_types("AVX512_CORE_BF16") == {"bfloat16": Verdict.WORKS, "float16": Verdict.WORKS}
    assert _calls(log) == ["bfloat16 float16"]
    assert probe_half_types()["bfloat16"] == Verdict.DIES


def test_the_answer_is_kept_for_other_processes(install: Install) -> None:
    log = install(TRAPPED)
    first = probe_half_types()
    probe_half_types.cache_clear()
    assert probe_half_types() == first
    assert len(_calls(log)) == 2


@pytest.mark.parametrize("mark", ["boot", "kernel", "torch", "features"])
def test_another_machine_is_asked_again(mark: str, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    log = install(TRAPPED)
    marks = half_probe._marks
    probe_half_types()
    probe_half_types.cache_clear()
    monkeypatch.setattr(half_probe, "_marks", lambda isa: {**marks(isa), mark: "another"})
    probe_half_types()
    assert len(_calls(log)) == 4
    folder = cache_folder()
    assert folder is not None
    assert len(list(folder.iterdir())) == (1 if mark == "boot" else 2)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"marks": 3}', "\x00"])
def test_a_spoilt_file_is_written_anew(content: str, install: Install) -> None:
    install(TRAPPED)
    first = probe_half_types()
    folder = cache_folder()
    assert folder is not None
    (path,) = folder.iterdir()
    path.write_text(content)
    probe_half_types.cache_clear()
    assert probe_half_types() == first
    assert json.loads(path.read_text())["verdicts"] == {"bfloat16": "dies", "float16": "works"}


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(TRAPPED)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert probe_half_types()["float16"] == Verdict.WORKS


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import os; os.kill(os.getpid(), 9)", "1/0"])
def test_an_end_that_says_nothing_is_not_kept(program: str, install: Install) -> None:
    install(program)
    assert set(probe_half_types().values()) == {Verdict.UNKNOWN}
    folder = cache_folder()
    assert folder is not None
    assert not folder.exists()


def test_a_child_that_hangs_is_given_up(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("import time; time.sleep(60)")
    monkeypatch.setattr(half_probe, "_TIMEOUT_S", 0.2)
    assert set(probe_half_types().values()) == {Verdict.UNKNOWN}


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", os.sep + "somewhere")
    assert cache_folder() == Path("/somewhere/.cache/drivetrain")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/somewhere/.cache/drivetrain")
