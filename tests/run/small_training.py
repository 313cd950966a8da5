"""Small, real runs: digits, a batch-norm network or a dropout network, a few updates."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import drivetrain
from drivetrain.program.training_program import TrainingProgram
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
