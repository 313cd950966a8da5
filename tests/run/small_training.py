"""Small, real runs: digits, a batch-norm network or a dropout network, a few updates."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import drivetrain
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.summary import finish
from tests.run.stopping import result_of

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "cifar_resnet8",
    "limit_train_samples": 100,
    "limit_validation_samples": 40,
    "micro_batch_size": 8,
    "gradient_accumulation_count": 2,
    "num_epochs": 3,
    "seed": 1,
    "device": "cpu",
}


TrainSmall = Callable[..., drivetrain.RunResult]


def train_small_run(path: Path, **options: Any) -> drivetrain.RunResult:
    """Trains the small recipe into a directory, quietly; options replace its values."""
    return result_of(drivetrain.train, quiet=True, output_dir=str(path), **{**SMALL, **options})


def leave_out_pictures(patch: pytest.MonkeyPatch) -> None:
    """Runs draw none from here on."""
    for name in ("draw_curves", "draw_predictions", "draw_mask_predictions", "write_evaluation"):
        patch.setattr(finish, name, lambda *arguments, **options: None)


def train_to_share(train: TrainSmall, path: Path, **options: Any) -> drivetrain.RunResult:
    """A training for several tests, on one thread and without pictures; they change copies of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            leave_out_pictures(patch)
            return train(path, **options)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def signal_after(update: int, number: int = signal.SIGTERM) -> Iterator[None]:
    """Sends this process a signal while `update` is running."""
    original = TrainingProgram.run_update

    def run_update(self: TrainingProgram, current: int) -> None:
        original(self, current)
        if current == update:
            os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingProgram, "run_update", run_update)
        yield


def final_files(directory: Path) -> dict[str, bytes]:
    """Every file of the newest checkpoint, as bytes."""
    newest = max((path for path in (directory / "checkpoints").iterdir()), key=lambda path: int(path.name))
    return {path.name: path.read_bytes() for path in sorted(newest.iterdir())} | {
        "update": newest.name.encode()
    }
