"""Checkpoints that are written while the training goes on."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import drivetrain
from drivetrain.core.errors import RunFailedError
from drivetrain.program.training_program import TrainingProgram
from drivetrain.state import checkpoint_writer
from drivetrain.state.checkpoint_writer import CheckpointWriter
from drivetrain.state.program_state import ProgramState
from drivetrain.store.checkpoint import load_checkpoint, save_checkpoint
from drivetrain.store.checkpoint_paths import checkpoint_paths
from tests.deadlines import HANG_S
from tests.run.stopping import result_of

STATE = ProgramState(model={"w": torch.arange(6.0)}, optimiser={"m/w": torch.ones(6)}, averaged={})


def _train(folder: Path, *, updates: int = 6, **options: Any) -> None:
    result_of(
        drivetrain.train,
        dataset="digits",
        limit_train_samples=48,
        micro_batch_size=8,
        max_updates=updates,
        num_epochs=100,
        device="cpu",
        output_dir=str(folder),
        **{"evaluate_every": 100, "checkpoint_every": 2, "keep_checkpoints": 100, **options},
    )


def _slow_saves(monkeypatch: pytest.MonkeyPatch, until: Callable[[int], bool]) -> list[bool]:
    """Saves wait for `until`; whether it came true is noted for each."""
    found: list[bool] = []

    def save(parent: Path, *, update: int, **content: Any) -> Path:
        found.append(until(update))
        return save_checkpoint(parent, update=update, **content)

    monkeypatch.setattr(checkpoint_writer, "save_checkpoint", save)
    return found


def test_updates_go_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write of update 2 ends only after update 3 has begun; the files are those of an ordinary run."""
    _train(tmp_path / "plain")
    third = threading.Event()
    run_update = TrainingProgram.run_update

    def noticed_update(program: TrainingProgram, update: int) -> None:
        if update == 2:
            third.set()
        run_update(program, update)

    monkeypatch.setattr(TrainingProgram, "run_update", noticed_update)
    found = _slow_saves(monkeypatch, lambda update: update != 2 or third.wait(HANG_S))
    _train(tmp_path / "slow")
    assert found == [True, True, True]
    for update in ("2", "4", "6"):
        plain, slow = (tmp_path / run / "checkpoints" / update for run in ("plain", "slow"))
        for name in ("model.safetensors", "optimizer.safetensors", "manifest.json"):
            assert (plain / name).read_bytes() == (slow / name).read_bytes()
    first, last = (tmp_path / "slow" / "checkpoints" / update / "model.safetensors" for update in "26")
    assert first.read_bytes() != last.read_bytes()


def test_no_copy_is_made_over_one_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write of update 2 lasts until the run wants its next checkpoint, and a little longer."""
    _train(tmp_path / "plain")
    wants_next = threading.Event()
    settle = CheckpointWriter.settle

    def noticed_settle(writer: CheckpointWriter) -> Any:
        if writer._begun is not None and not writer._begun.done():
            wants_next.set()
        return settle(writer)

    def until(update: int) -> bool:
        is_wanted = update != 2 or wants_next.wait(HANG_S)
        time.sleep(0.2 if update == 2 else 0.0)
        return is_wanted

    monkeypatch.setattr(CheckpointWriter, "settle", noticed_settle)
    found = _slow_saves(monkeypatch, until)
    _train(tmp_path / "slow")
    assert found == [True, True, True]
    plain, slow = (tmp_path / run / "checkpoints/2/model.safetensors" for run in ("plain", "slow"))
    assert plain.read_bytes() == slow.read_bytes()


def test_writes_that_go_on_failing_fail_the_run_and_keep_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_from_4_on(update: int) -> bool:
        if update >= 4:
            raise RunFailedError(f"the disk is full at {update}")
        return True

    _slow_saves(monkeypatch, fail_from_4_on)
    with pytest.raises(RunFailedError, match=r"the disk is full at [56]"):
        _train(tmp_path / "run", updates=20)
    assert [path.name for path in checkpoint_paths(tmp_path / "run" / "checkpoints")] == ["2"]


def test_a_write_that_failed_once_is_made_up_for_at_the_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The update it was of is lost, but nothing else; logs are events too."""

    def fail_at_4(update: int) -> bool:
        if update == 4:
            raise RunFailedError("the disk is full.")
        return True

    _slow_saves(monkeypatch, fail_at_4)
    _train(tmp_path / "run", updates=20, checkpoint_every=4, log_every=1)
    names = [int(path.name) for path in checkpoint_paths(tmp_path / "run" / "checkpoints")]
    assert 4 not in names
    assert names[0] in (5, 6, 7, 8)
    assert names[-4:] == [8, 12, 16, 20]
    told = capsys.readouterr()
    assert "the disk is full. The checkpoint of update" in told.out + told.err


def test_a_stop_keeps_its_weights_though_an_earlier_write_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_at_2(update: int) -> bool:
        if update == 2:
            raise RunFailedError("the disk is full.")
        return True

    run_update = TrainingProgram.run_update

    def stopping_update(program: TrainingProgram, update: int) -> None:
        if update == 2:
            signal.raise_signal(signal.SIGINT)
        run_update(program, update)

    _slow_saves(monkeypatch, fail_at_2)
    monkeypatch.setattr(TrainingProgram, "run_update", stopping_update)
    _train(tmp_path / "run")
    assert [path.name for path in checkpoint_paths(tmp_path / "run" / "checkpoints")] == ["3"]


def test_a_training_that_fails_leaves_the_checkpoint_it_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    run_update = TrainingProgram.run_update

    def failing_update(program: TrainingProgram, update: int) -> None:
        if update == 3:
            failed.set()
            raise RuntimeError("an update failed")
        run_update(program, update)

    monkeypatch.setattr(TrainingProgram, "run_update", failing_update)
    found = _slow_saves(monkeypatch, lambda _: failed.wait(HANG_S))
    with pytest.raises(RuntimeError, match="an update failed"):
        _train(tmp_path / "run")
    assert found == [True]
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "2").update == 2


def test_a_training_that_fails_tells_of_a_lost_checkpoint_too(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path / "file" / "checkpoints", keep_last=1)
    (tmp_path / "file").write_text("no folder")

    def fail() -> None:
        with writer:
            writer.start(STATE, update=1, state={}, best_update=None)
            raise RuntimeError("an update failed")

    with pytest.raises(RuntimeError, match="an update failed") as caught:
        fail()
    assert "a checkpoint could not be written: the checkpoint of update 1" in caught.value.__notes__[0]


def test_one_checkpoint_is_whole_before_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def save(parent: Path, *, update: int, **content: Any) -> Path:
        events.append(f"begin {update}")
        path = save_checkpoint(parent, update=update, **content)
        events.append(f"end {update}")
        return path

    monkeypatch.setattr(checkpoint_writer, "save_checkpoint", save)
    with CheckpointWriter(tmp_path, keep_last=2) as writer:
        for update in range(1, 5):
            writer.start(STATE, update=update, state={}, best_update=1)
    assert events == [f"{what} {update}" for update in range(1, 5) for what in ("begin", "end")]
    assert [path.name for path in checkpoint_paths(tmp_path)] == ["1", "3", "4"]


def test_a_checkpoint_tells_of_the_trainings_threads(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with CheckpointWriter(tmp_path, keep_last=1) as writer:
            writer.start(STATE, update=1, state={}, best_update=None)
    finally:
        torch.set_num_threads(threads)
    assert load_checkpoint(tmp_path / "1").manifest["environment"]["threads"] == threads + 1
