"""Small trainings by the command line, and what they leave behind."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from drivetrain.store.update_history import load_history

__all__ = ["LITTLE", "SMALL", "first_losses_differ", "weights"]

LITTLE = [
    "--dataset=digits",
    "--model=cifar_resnet8",
    "--limit-train-samples=40",
    "--limit-validation-samples=20",
    "--micro-batch-size=8",
    "--num-epochs=100",
    "--device=cpu",
    "--compile=off",
]
"""For trainings of a few updates in the process of the test itself."""

SMALL = [
    "--dataset=digits",
    "--limit-train-samples=96",
    "--limit-validation-samples=21",
    "--micro-batch-size=8",
    "--global-batch-size=32",
    "--num-threads=1",
    "--device=cpu",
]


def weights(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The newest weights of a run."""
    newest = max((path / "checkpoints").glob("[0-9]*"), key=lambda entry: int(entry.name))
    return load_file(newest / "model.safetensors")


def first_losses_differ(one: Path, other: Path) -> float:
    """How far the first two losses of two runs are apart; the second tells what the first update did.

    Later ones would measure the processor, as rounding grows from update to update.
    """
    first, second = (load_history(run / "updates.npz")["loss"][:2] for run in (one, other))
    assert len(first) == 2
    return float(np.abs(first - second).max())
