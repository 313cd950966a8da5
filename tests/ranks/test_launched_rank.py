"""What ranks of other launchers leave behind: a log each, and one sentence when they fail."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError
from drivetrain.ranks.launched_rank import launched_rank
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.rank_process import keep_log

PLACE = RankPlace(
    rank=3,
    world_size=4,
    local_rank=1,
    local_world_size=2,
    address="first-host",
    port=29400,
    launcher="slurm",
)
Captured = pytest.CaptureFixture[str]


@contextmanager
def _real_outputs() -> Iterator[None]:
    """Python's own streams print to files 1 and 2, as they do where nothing captures them."""
    with (
        open(1, "w", buffering=1, closefd=False) as out,
        open(2, "w", buffering=1, closefd=False) as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        yield


def _fail(error: BaseException, *, log: Path | None = None, place: RankPlace = PLACE) -> None:
    with launched_rank(place):
        if log is not None:
            keep_log(log)
        raise error


@_real_outputs()
def test_what_is_printed_goes_to_the_log_and_then_back(tmp_path: Path, capfd: Captured) -> None:
    log = tmp_path / "not" / "yet" / "rank-3.log"
    with launched_rank(PLACE):
        print("early")
        keep_log(log)
        print("late")
        os.write(2, b"from below\n")
    print("after", file=sys.stderr)
    keep_log(tmp_path / "rank-4.log")
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("early\n", "after\n")
    assert sorted(log.read_text().splitlines()) == ["from below", "late"]
    assert not (tmp_path / "rank-4.log").exists()


@_real_outputs()
def test_a_log_that_cannot_be_written_changes_nothing(tmp_path: Path, capfd: Captured) -> None:
    (tmp_path / "file").touch()
    with launched_rank(PLACE):
        keep_log(tmp_path / "file" / "rank-3.log")
        print("here")
    shown = capfd.readouterr()
    assert shown.out == "here\n"
    assert shown.err.startswith("warning: ")


@pytest.mark.parametrize("keeps", [True, False])
@_real_outputs()
def test_a_bug_is_shown_before_the_sentence(keeps: bool, tmp_path: Path, capfd: Captured) -> None:
    log = tmp_path / "rank-3.log"
    with pytest.raises(RunFailedError, match=r"^rank 3 on \S+ failed: ValueError: odd weights$") as caught:
        _fail(ValueError("odd weights"), log=log if keeps else None)
    assert caught.value.exit_status == 1
    shown = capfd.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.count("Traceback") == 1
    if keeps:
        assert log.read_text().splitlines()[-1] == str(caught.value)


@_real_outputs()
def test_a_sentence_needs_no_traceback(tmp_path: Path, capfd: Captured) -> None:
    with pytest.raises(BadInputError, match=r"^rank 3 on \S+ failed: --data-dir is empty.$") as caught:
        _fail(BadInputError("--data-dir is empty."), log=tmp_path / "rank-3.log")
    assert caught.value.exit_status == 2
    assert capfd.readouterr().err == ""


@_real_outputs()
def test_a_rank_that_others_left_says_so_shortly(tmp_path: Path, capfd: Captured) -> None:
    log = tmp_path / "rank-3.log"
    with pytest.raises(
        RunFailedError, match=r"^rank 3 on \S+ lost its connection to another rank: RuntimeError"
    ):
        _fail(RuntimeError("Connection closed by peer [10.0.0.1]:5"), log=log)
    assert capfd.readouterr().err == ""
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize("words", ["odd weights", "Connection closed by peer"])
@_real_outputs()
def test_torchrun_learns_the_cause(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    noted = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(noted))
    with pytest.raises(DrivetrainError):
        _fail(RuntimeError(words), place=replace(PLACE, launcher="torchrun"))
    capfd.readouterr()
    if words == "odd weights":
        assert "failed: RuntimeError: odd weights" in json.loads(noted.read_text())["message"]["message"]
    else:
        assert not noted.exists()


@_real_outputs()
def test_an_interruption_passes_through(tmp_path: Path, capfd: Captured) -> None:
    with pytest.raises(KeyboardInterrupt):
        _fail(KeyboardInterrupt(), log=tmp_path / "rank-3.log")
    print("here again")
    assert capfd.readouterr().out == "here again\n"
