"""Reads the weights that `--init-from` names: a file, a run, or one checkpoint of a run."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.store.checkpoint import (
    MANIFEST_FILE,
    Checkpoint,
    CorruptCheckpointError,
    load_checkpoint,
    newest_checkpoint,
)
from drivetrain.store.checkpoint_paths import checkpoint_paths, update_of
from drivetrain.store.directory import RunDirectory

__all__ = ["read_weights"]

_PICKLES = (".pt", ".pth")


def read_weights(path: str) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by name, on the CPU, and what should be said about where they come from."""
    place = Path(path).expanduser()
    if place.is_dir():
        return _of_directory(place)
    if not place.exists():
        raise BadInputError(
            f"--init-from {path} does not exist; name a run directory or a .safetensors file."
        )
    if place.suffix == ".safetensors":
        return _of_safetensors(place), []
    if place.suffix in _PICKLES:
        return _of_pickle(place), []
    raise BadInputError(
        f"--init-from {path} is neither a run directory nor a .safetensors, .pt or .pth file; "
        "save the weights with safetensors."
    )


def _of_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInputError(
            f"--init-from {path} cannot be read as safetensors: {_one_line(error)}"
        ) from error
    return tensors


def _of_pickle(path: Path) -> dict[str, Tensor]:
    try:
        # A pickle can hold code; this loader takes tensors and plain containers alone.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise BadInputError(
            f"--init-from {path} holds more than tensors, or is broken, and is not opened; save "
            "model.state_dict() with safetensors."
        ) from error
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise BadInputError(
            f"--init-from {path} is no plain state dict of tensors; save model.state_dict() alone."
        )
    return dict(content)


def _of_directory(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    if (path / MANIFEST_FILE).is_file():
        return _weights_of(_sound_checkpoint(path)), []
    directory = RunDirectory(path)
    if not directory.holds_run:
        raise BadInputError(
            f"--init-from {path} is a folder but no run; `drivetrain runs` lists the runs there are."
        )
    newest, problems = newest_checkpoint(directory.checkpoints)
    if newest is None:
        reason = problems[0] if problems else "it was trained without, or has not come so far"
        raise BadInputError(f"--init-from {path} holds no sound checkpoint: {reason}.")
    warnings = [f"--init-from {path}: {problem}" for problem in problems]
    return _weights_of(_best_or(newest, directory)), warnings


def _weights_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What was validated: averaged weights where there are some."""
    return checkpoint.averaged or checkpoint.model


def _best_or(newest: Checkpoint, directory: RunDirectory) -> Checkpoint:
    """The best validated checkpoint where the run knows one and still holds it."""
    best = newest.best_update
    for path in checkpoint_paths(directory.checkpoints):
        if update_of(path) == best and best != newest.update:
            return _sound_checkpoint(path)
    return newest


def _sound_checkpoint(path: Path) -> Checkpoint:
    try:
        return load_checkpoint(path)
    except CorruptCheckpointError as error:
        raise BadInputError(f"--init-from {path} is corrupt: {error}.") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
