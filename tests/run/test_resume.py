"""Kill it anywhere, run the same command again, get the same weights."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.data import order
from drivetrain.inference.model.evaluator import Evaluator
from drivetrain.run.stopping import listen_for_stop
from drivetrain.store.metrics_file import read_metrics
from drivetrain.store.update_history import load_history
from tests.deadlines import HANG_S
from tests.run.small_training import SMALL, TrainSmall, final_files, signal_after

pytestmark = pytest.mark.usefixtures("no_pictures")

STREAMED = {"data_placement": "stream", "num_workers": 0}
UPDATES_PER_EPOCH = 6
TOTAL = 18


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    import drivetrain

    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("straight") / "run"
    drivetrain.train(quiet=True, output_dir=str(path), **SMALL)
    return path


@pytest.mark.parametrize("update", [0, 1, 4, 6, 15])
def test_a_run_stopped_at_any_update_ends_with_the_same_bits(
    update: int, straight: Path, tmp_path: Path, train_small: TrainSmall
) -> None:
    with signal_after(update):
        stopped = train_small(tmp_path / "run")
    assert (stopped.status, stopped.updates, stopped.exit_status) == ("stopped", update + 1, 143)
    finished = train_small(tmp_path / "run", **STREAMED)
    assert finished.status == "finished"
    assert final_files(tmp_path / "run") == final_files(straight)


def test_three_stops_inside_one_epoch_and_two_loader_workers(
    straight: Path, tmp_path: Path, train_small: TrainSmall
) -> None:
    for update in (6, 7, 9):
        with signal_after(update, signal.SIGINT):
            assert train_small(tmp_path / "run", **STREAMED).exit_status == 130
    train_small(tmp_path / "run", data_placement="stream", num_workers=2)
    assert final_files(tmp_path / "run") == final_files(straight)


def test_metrics_and_history_of_a_continued_run_are_those_of_the_straight_one(
    straight: Path, tmp_path: Path, train_small: TrainSmall
) -> None:
    with signal_after(8):
        train_small(tmp_path / "run")
    train_small(tmp_path / "run")
    logs = [read_metrics(path / "metrics.jsonl") for path in (straight, tmp_path / "run")]
    timeless = [[_without_times(entry) for entry in log] for log in logs]
    assert timeless[0] == timeless[1]
    histories = [load_history(path / "updates.npz") for path in (straight, tmp_path / "run")]
    for name in histories[0]:
        assert np.array_equal(histories[0][name], histories[1][name])
        assert len(histories[0][name]) == TOTAL


def _without_times(entry: dict[str, Any]) -> dict[str, Any]:
    kept = ("event", "update", "epoch", "samples", "loss", "accuracy", "learning_rate")
    return {name: entry[name] for name in kept if name in entry}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_kill_9_between_two_checkpoints(
    num_workers: int, straight: Path, tmp_path: Path, train_small: TrainSmall
) -> None:
    status = _train_and_kill(tmp_path / "run", update=10, checkpoint_every=4, kept=["6", "8"])
    assert status == -signal.SIGKILL
    train_small(tmp_path / "run", data_placement="stream", num_workers=num_workers)
    assert final_files(tmp_path / "run") == final_files(straight)


def _train_and_kill(path: Path, *, update: int, checkpoint_every: int, kept: list[str]) -> int:
    """Kills the training after an update, once the checkpoints that are written beside it are there."""
    script = f"""
import os, signal, time, torch, drivetrain
from drivetrain.program.training_program import TrainingProgram
torch.set_num_threads(1)
run_update = TrainingProgram.run_update
def killed(self, update):
    run_update(self, update)
    if update == {update}:
        while sorted(os.listdir({str(path / "checkpoints")!r})) != {kept!r}:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
TrainingProgram.run_update = killed
drivetrain.train(quiet=True, output_dir={str(path)!r}, checkpoint_every={checkpoint_every}, **{SMALL!r})
"""
    return subprocess.run([sys.executable, "-c", script], check=False, timeout=HANG_S).returncode


def test_negative_control_another_sample_order_ends_with_other_weights(
    straight: Path, tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with signal_after(8):
        train_small(tmp_path / "run")
    permutation = order._permutation
    monkeypatch.setattr(order, "_permutation", lambda *address: permutation(*address)[::-1])
    train_small(tmp_path / "run")
    assert final_files(tmp_path / "run")["model.safetensors"] != final_files(straight)["model.safetensors"]


def test_a_dropout_model_continues_with_the_same_bits(tmp_path: Path, train_small: TrainSmall) -> None:
    options = {"model": "mnist_cnn", "image_size": 12, "optimizer": "adam", "learning_rate": 0.001}
    train_small(tmp_path / "straight", **options)
    with signal_after(3):
        train_small(tmp_path / "run", **options)
    train_small(tmp_path / "run", **options)
    assert final_files(tmp_path / "run") == final_files(tmp_path / "straight")


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    script = f"""
import os, signal, time, drivetrain
from drivetrain.program.training_program import TrainingProgram
def twice(self, update):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.6)
    os.kill(os.getpid(), signal.SIGTERM)
TrainingProgram.run_update = twice
drivetrain.train(quiet=True, output_dir={str(tmp_path / "run")!r}, **{SMALL!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=HANG_S).returncode == 143
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert os.listdir(tmp_path / "run")


def test_the_same_signal_by_two_ways_is_one_request() -> None:
    with listen_for_stop() as request:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert request.exit_status == 143


def _validations(path: Path) -> list[tuple[int, float]]:
    return [
        (e["update"], e["loss"]) for e in read_metrics(path / "metrics.jsonl") if e["event"] == "validation"
    ]


@pytest.mark.parametrize("update", [UPDATES_PER_EPOCH - 1, TOTAL - 1])
def test_a_stop_before_a_validation_owes_it_to_the_continued_run(
    update: int, straight: Path, tmp_path: Path, train_small: TrainSmall
) -> None:
    with signal_after(update):
        train_small(tmp_path / "run")
    assert update + 1 not in dict(_validations(tmp_path / "run"))
    finished = train_small(tmp_path / "run")
    assert finished.status == "finished"
    assert _validations(tmp_path / "run") == _validations(straight)
    assert final_files(tmp_path / "run") == final_files(straight)


def test_a_stop_breaks_a_long_validation_off_and_keeps_the_weights(
    straight: Path, tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    measure = Evaluator.__call__

    def stopped(self: Evaluator, **options: Any) -> Any:
        def on_batch(samples: int) -> None:
            batches.append(samples)
            os.kill(os.getpid(), signal.SIGTERM)
            options["on_batch"](samples)

        return measure(self, **{**options, "on_batch": on_batch})

    monkeypatch.setattr(Evaluator, "__call__", stopped)
    result = train_small(tmp_path / "run", validation_micro_batch_size=8)
    assert (result.status, result.exit_status, result.updates) == ("stopped", 143, UPDATES_PER_EPOCH)
    assert batches == [8]
    monkeypatch.undo()
    train_small(tmp_path / "run", validation_micro_batch_size=8)
    assert [update for update, _ in _validations(tmp_path / "run")] == [6, 12, 18]
    assert final_files(tmp_path / "run") == final_files(straight)
