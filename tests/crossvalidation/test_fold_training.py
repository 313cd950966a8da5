"""Folds side by side: the scheduling of their processes, and that the result is the one of folds in turn."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.crossvalidation.fold_training import FoldOutcome, train_side_by_side
from drivetrain.crossvalidation.job import device_names
from drivetrain.run.stopping import StopRequest
from tests.crossvalidation import crossval_jobs
from tests.deadlines import HANG_S, wait_until
from tests.ranks.rank_functions import lives
from tests.run.small_training import final_files

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "limit_train_samples": 64,
    "limit_validation_samples": 20,
    "micro_batch_size": 16,
    "num_threads": 1,
    "num_epochs": 3,
    "device": "cpu",
    "checkpoint_every": 1,
}


def _side_by_side(folds: int, train: Any, **options: Any) -> tuple[dict[int, FoldOutcome], list[int]]:
    order: list[int] = []
    settings: dict[str, Any] = {"at_once": 2, "stop": StopRequest(), "may_begin": lambda: True, **options}
    ended = train_side_by_side(
        range(folds), train=train, on_end=lambda fold, _: order.append(fold), **settings
    )
    return ended, order


def test_slots_are_taken_in_turn(tmp_path: Path) -> None:
    ended, order = _side_by_side(3, lambda fold, slot: partial(crossval_jobs.note, tmp_path, fold, slot))
    assert [ended[fold].status for fold in range(3)] == ["finished"] * 3
    assert sorted(order) == [0, 1, 2]
    slots = [int((tmp_path / f"slot-{fold}").read_text()) for fold in range(3)]
    assert slots[:2] == [0, 1]
    assert set(slots) == {0, 1}


def test_the_job_hears_which_folds_are_running(tmp_path: Path) -> None:
    heard: list[tuple[int, ...]] = []
    _side_by_side(
        2, lambda fold, slot: partial(crossval_jobs.note, tmp_path, fold, slot), on_look=heard.append
    )
    assert (0, 1) in heard


def test_the_first_fold_begins_alone(tmp_path: Path) -> None:
    _side_by_side(
        2,
        lambda fold, slot: partial(crossval_jobs.note, tmp_path, fold, slot),
        may_begin=(tmp_path / "ended-0").exists,
    )
    first, second = ((tmp_path / f"began-{fold}").stat().st_mtime for fold in range(2))
    assert second >= (tmp_path / "ended-0").stat().st_mtime > first


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [("bad input", 2, "try --model"), ("run", 1, "became nan"), ("kill", 1, "SIGKILL")],
)
def test_a_failure_is_told_and_starts_no_more(how: str, status: int, words: str) -> None:
    ended, _ = _side_by_side(3, lambda _fold, _slot: partial(crossval_jobs.fail, how), at_once=1)
    assert list(ended) == [0]
    assert (ended[0].status, ended[0].exit_status) == ("failed", status)
    assert words in str(ended[0].error)


def test_a_stop_reaches_all_that_run_and_starts_no_more(tmp_path: Path) -> None:
    stop = StopRequest()

    def ask() -> None:
        wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
        stop.make(130)

    asker = threading.Thread(target=ask)
    asker.start()
    ended, _ = _side_by_side(
        3, lambda fold, _slot: partial(crossval_jobs.wait_for_stop, tmp_path, fold), stop=stop
    )
    asker.join()
    assert {fold: outcome.exit_status for fold, outcome in ended.items()} == {0: 143, 1: 143}


def test_what_cannot_travel_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="--parallel-folds"):
        _side_by_side(1, lambda _fold, _slot: lambda: None)


def test_folds_take_different_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    assert device_names("auto") == device_names("cuda") == ["cuda:0", "cuda:1", "cuda:2"]
    assert device_names("cuda:1") == ["cuda:1"]
    assert device_names("cpu") == ["cpu"]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert device_names("auto") == ["auto"]


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folds, one after the other."""
    path = tmp_path_factory.mktemp("in turn") / "job"
    drivetrain.crossval(quiet=True, folds=2, output_dir=str(path), **SMALL)
    return path


def _are_equal(one: Path, other: Path) -> bool:
    return all(final_files(one / fold) == final_files(other / fold) for fold in ("fold-0", "fold-1"))


@pytest.mark.usefixtures("no_pictures")
def test_folds_side_by_side_are_the_folds_in_turn_bit_for_bit(in_turn: Path, tmp_path: Path) -> None:
    path = tmp_path / "job"
    options = {**SMALL, "folds": 2, "output_dir": str(path), "quiet": True}
    found = drivetrain.crossval(parallel_folds=2, **options)
    assert found.status == "finished"
    assert [fold.fold for fold in found.folds] == [0, 1]
    assert _are_equal(path, in_turn)
    assert drivetrain.crossval(**options).folds == found.folds


@pytest.mark.parametrize(
    "wrong",
    [
        {"model_params": {"nonsense": 3}},
        {"dataset": "mnist", "data_dir": "nowhere"},
    ],
)
def test_bad_input_is_found_by_one_fold_and_leaves_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = tmp_path / "new" / "job"
    with pytest.raises(BadInputError):
        drivetrain.crossval(quiet=True, folds=2, parallel_folds=2, output_dir=str(path), **{**SMALL, **wrong})
    assert list(tmp_path.iterdir()) == []


def _command(path: Path) -> list[str]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    layout = ["--folds=2", "--parallel-folds=2", f"--output-dir={path}"]
    return [sys.executable, "-m", "drivetrain", "crossval", *options, *layout]


def _start(path: Path, *, updates: int) -> "subprocess.Popen[bytes]":
    """A job of which both folds have so many updates behind them."""
    process = subprocess.Popen(_command(path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    folds = [path / f"fold-{fold}" / "checkpoints" for fold in range(2)]
    wait_until(lambda: all(_newest(fold) >= updates for fold in folds))
    return process


def _newest(checkpoints: Path) -> int:
    return max((int(entry.name) for entry in checkpoints.glob("[0-9]*")), default=0)


def test_a_signal_and_a_kill_leave_what_the_same_command_continues(in_turn: Path, tmp_path: Path) -> None:
    path = tmp_path / "job"
    process = _start(path, updates=1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode in (0, 130), errors
    if process.returncode == 130:
        process = _start(path, updates=2)
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=HANG_S)
        wait_until(lambda: not any(lives(child.pid) for child in children), what="the end of the folds")
    finished = subprocess.run(_command(path), capture_output=True, timeout=HANG_S, check=False)
    assert finished.returncode == 0, finished.stderr
    assert _are_equal(path, in_turn)
