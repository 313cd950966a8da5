"""Applies `--init-from`: reads the weights of another training and loads them by name and shape."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

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

__all__ = ["load_initial_weights", "read_weights"]

# Weights of another model mismatch in almost every tensor; the first few show it.
_MOST_NAMED = 3
_COUNTER = "num_batches_tracked"
_PICKLES = (".pt", ".pth")


def load_initial_weights(model: nn.Module, path: str) -> list[str]:
    """Loads the weights in `path`; returns warnings, one of them if the classifier head is not loaded."""
    # Runs come after models; only this option reaches for them.

    found, warnings = read_weights(path)
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    head = [
        name for name in _head_tensors(model) if name in found and _has_other_classes(own[name], found[name])
    ]
    fitting = {name for name in found if name in own and found[name].shape == own[name].shape}
    _check_fit(own, found, head=head, fitting=fitting, path=path)
    with torch.no_grad():
        for name in fitting:
            own[name].copy_(found[name])
    return [*warnings, *([_head_warning(own, found, head=head, path=path)] if head else [])]


def _head_tensors(model: nn.Module) -> list[str]:
    """The parameters of the last layer that has any."""
    names = [name for name, _ in model.named_parameters()]
    layer = names[-1].rpartition(".")[0] if names else ""
    return [name for name in names if name.rpartition(".")[0] == layer]


def _has_other_classes(own: Tensor, found: Tensor) -> bool:
    is_alike = own.ndim == found.ndim >= 1 and own.shape[1:] == found.shape[1:]
    return is_alike and own.shape[0] != found.shape[0]


def _check_fit(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: list[str], fitting: set[str], path: str
) -> None:
    if not any(name for name in fitting if not name.endswith(_COUNTER)):
        raise BadInputError(
            f"--init-from {path} contains no weights that fit the model; give weights of this --model."
        )
    problems = [problem for problem in _mismatches(own, found, head=head) if problem]
    if problems:
        named = ", ".join(problems[:_MOST_NAMED])
        more = f" and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise BadInputError(
            f"--init-from {path} does not fit the model: {named}{more}; give weights of this --model."
        )


def _mismatches(own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: list[str]) -> list[str]:
    """A phrase for each tensor that is missing, unexpected or of another shape; ignores batch counters."""
    phrases: list[str] = []
    for name in own:
        if name not in found and not name.endswith(_COUNTER):
            phrases.append(f"{name} is missing")
        elif name in found and found[name].shape != own[name].shape and name not in head:
            phrases.append(f"{name} is {_size(found[name])} instead of {_size(own[name])}")
    unexpected = [name for name in found if name not in own and not name.endswith(_COUNTER)]
    return phrases + [f"{name} is not in the model" for name in unexpected]


def _head_warning(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: list[str], path: str
) -> str:
    name = head[0]
    layer = name.rpartition(".")[0] or name
    return (
        f"--init-from {path} has {found[name].shape[0]} classes, but the model has {own[name].shape[0]}: "
        f"{layer} starts from newly initialised weights."
    )


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"


def read_weights(path: str) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of a file, a run or a checkpoint, by name, on the CPU; and warnings about their source."""
    place = Path(path).expanduser()
    if place.is_dir():
        return _of_directory(place)
    if not place.exists():
        raise BadInputError(
            f"--init-from {path} does not exist; give a run directory or a .safetensors file."
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
        # A pickle can contain code; weights_only restricts it to tensors and plain containers.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        raise BadInputError(
            f"--init-from {path} contains more than tensors, or is damaged, and is not opened; save "
            "model.state_dict() with safetensors."
        ) from error
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise BadInputError(
            f"--init-from {path} is not a plain state dict of tensors; save model.state_dict() only."
        )
    return dict(content)


def _of_directory(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    if (path / MANIFEST_FILE).is_file():
        return _weights_of(_sound_checkpoint(path)), []
    directory = RunDirectory(path)
    if not directory.holds_run:
        raise BadInputError(
            f"--init-from {path} is a folder but not a run; `drivetrain runs` lists all runs."
        )
    newest, problems = newest_checkpoint(directory.checkpoints)
    if newest is None:
        reason = problems[0] if problems else "it was trained without any, or stopped before the first one"
        raise BadInputError(f"--init-from {path} has no intact checkpoint: {reason}.")
    warnings = [f"--init-from {path}: {problem}" for problem in problems]
    return _weights_of(_best_or(newest, directory)), warnings


def _weights_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights that were validated: the averaged ones, if there are any."""
    return checkpoint.averaged or checkpoint.model


def _best_or(newest: Checkpoint, directory: RunDirectory) -> Checkpoint:
    """The best checkpoint by validation, if the run has recorded and kept one; else the newest."""
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
