"""Reads the tensors of `--init-from` and `--pretrained`: a file, a run, or a folder of another program."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.containers import state_dict_in
from drivetrain.models.weights.parts import is_index, parts_of
from drivetrain.store.checkpoint import (
    MANIFEST_FILE,
    Checkpoint,
    CorruptCheckpointError,
    load_checkpoint,
    newest_checkpoint,
)
from drivetrain.store.checkpoint_paths import checkpoint_paths, update_of
from drivetrain.store.directory import RunDirectory

__all__ = ["FOLDER_FILES", "read_weights"]

_SAFE = ".safetensors"
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
# In the order in which they are taken: the names that the hub's libraries write, and lists of parts.
FOLDER_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_LFS_POINTER = b"version https://git-lfs"


def read_weights(path: str, *, option: str) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors in a place, by name, on the CPU; and warnings about the place. `option` named it."""
    place = Path(path).expanduser()
    given = f"{option} {path}"
    if place.is_dir():
        return _of_directory(place, given=given)
    if not place.exists():
        raise BadInputError(f"{given} does not exist; give a run directory or a .safetensors file.")
    return _of_file(place, given=given)


def _of_file(path: Path, *, given: str) -> tuple[dict[str, Tensor], list[str]]:
    if is_index(path.name):
        return state_dict_in(_of_parts(path, given=given), given=given)
    if path.suffix != _SAFE and path.suffix not in _PICKLES:
        raise BadInputError(
            f"{given} is neither a run directory nor a .safetensors, .pt, .pth or .bin file; "
            "save the weights with safetensors."
        )
    _refuse_placeholder(path, given=given)
    if path.suffix == _SAFE:
        return state_dict_in(_of_safetensors(path, given=given), given=given)
    return state_dict_in(_of_pickle(path, given=given), given=given)


def _refuse_placeholder(path: Path, *, given: str) -> None:
    """Refuses what a download that did not happen leaves behind."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS_POINTER))
    except OSError as error:
        raise BadInputError(f"{given} cannot be read: {error.strerror or error}.") from error
    if not start:
        raise BadInputError(f"{given} is an empty file; download or save the weights again.")
    if start == _LFS_POINTER:
        raise BadInputError(
            f"{given} is a pointer of Git LFS instead of the weights; `git lfs pull` fetches them."
        )


def _of_safetensors(path: Path, *, given: str) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInputError(
            f"{given} cannot be read as safetensors ({_one_line(error)}); download or save the weights again."
        ) from error
    return tensors


def _of_pickle(path: Path, *, given: str) -> object:
    try:
        # A pickle can contain code; weights_only restricts it to tensors and plain containers.
        content: object = torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file can fail anywhere in the unpickler.
    except Exception as error:
        raise BadInputError(
            f"{given} contains more than tensors, or is damaged, and is not opened; save "
            "model.state_dict() with safetensors."
        ) from error
    return content


def _of_directory(path: Path, *, given: str) -> tuple[dict[str, Tensor], list[str]]:
    if (path / MANIFEST_FILE).is_file():
        return _weights_of(_sound_checkpoint(path, given=given)), []
    directory = RunDirectory(path)
    if directory.holds_run:
        return _of_run(directory, given=given)
    file = _weight_file_in(path, given=given)
    return _of_file(file, given=f"{given} ({file.relative_to(path)})")


def _of_run(directory: RunDirectory, *, given: str) -> tuple[dict[str, Tensor], list[str]]:
    newest, problems = newest_checkpoint(directory.checkpoints)
    if newest is None:
        reason = problems[0] if problems else "it was trained without any, or stopped before the first one"
        raise BadInputError(f"{given} has no intact checkpoint: {reason}.")
    warnings = [f"{given}: {problem}" for problem in problems]
    return _weights_of(_best_or(newest, directory, given=given)), warnings


def _weights_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights that were validated: the averaged ones, if there are any."""
    return checkpoint.averaged or checkpoint.model


def _best_or(newest: Checkpoint, directory: RunDirectory, *, given: str) -> Checkpoint:
    """The best checkpoint by validation, if the run has recorded and kept one; else the newest."""
    best = newest.best_update
    for path in checkpoint_paths(directory.checkpoints):
        if update_of(path) == best and best != newest.update:
            return _sound_checkpoint(path, given=given)
    return newest


def _sound_checkpoint(path: Path, *, given: str) -> Checkpoint:
    try:
        return load_checkpoint(path)
    except CorruptCheckpointError as error:
        raise BadInputError(f"{given}: {path.parent.name}/{path.name} is corrupt: {error}.") from error


def _weight_file_in(path: Path, *, given: str) -> Path:
    """The file that a hub's library would read, or the only file of weights."""
    folder = _snapshot_in(path)
    named = next((folder / name for name in FOLDER_FILES if (folder / name).is_file()), None)
    if named is not None:
        return named
    files = sorted(file for file in folder.iterdir() if file.suffix in (_SAFE, *_PICKLES))
    files = [file for file in files if file.suffix == _SAFE] or files
    if len(files) == 1:
        return files[0]
    if not files:
        raise BadInputError(
            f"{given} is a folder but neither a run nor one with a file of weights; `drivetrain runs` lists "
            "all runs."
        )
    raise BadInputError(
        f"{given} holds {len(files)} files of weights, such as {files[0].name} and {files[1].name}; "
        "give one of them."
    )


def _snapshot_in(path: Path) -> Path:
    """The folder of the files in a repository of the hub's local cache; any other folder is its own."""
    reference = path / "refs" / "main"
    snapshot = path / "snapshots" / (reference.read_text().strip() if reference.is_file() else "")
    return snapshot if reference.is_file() and snapshot.is_dir() else path


def _of_parts(index: Path, *, given: str) -> dict[str, Tensor]:
    """The tensors of all files that an index names."""
    try:
        parts = parts_of(index)
    except ValueError as error:
        raise BadInputError(f"{given}: {error}; download it again.") from error
    tensors: dict[str, Tensor] = {}
    for part in parts:
        if not part.is_file():
            raise BadInputError(f"{given} lacks {part.name}, which {index.name} names; download it as well.")
        tensors |= _of_file(part, given=f"{given} ({part.name})")[0]
    return tensors


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
