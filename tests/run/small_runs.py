"""Small trainings by the command line, and what they leave behind."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

__all__ = ["SMALL", "TIMEOUT_S", "differ", "weights"]

SMALL = [
    "--dataset=digits",
    "--limit-train-samples=96",
    "--limit-validation-samples=21",
    "--micro-batch-size=8",
    "--global-batch-size=32",
    "--num-threads=1",
    "--device=cpu",
]
TIMEOUT_S = 150


def weights(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The newest weights of a run."""
    newest = max((path / "checkpoints").glob("[0-9]*"), key=lambda entry: int(entry.name))
    return load_file(newest / "model.safetensors")


def differ(one: Path, other: Path) -> float:
    """The largest relative difference between the weights of two runs."""
    expected, found = weights(one), weights(other)
    return max(
        float(np.linalg.norm(expected[key] - found[key]) / (np.linalg.norm(expected[key]) + 1e-6))
        for key in expected
    )
