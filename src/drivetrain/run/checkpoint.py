"""Checkpoints: safetensors and a JSON manifest with checksums, in place by one rename.

A checkpoint holds no time, host or path, so equal weights are equal files. There is no generator or
loader state to keep: the update number says all.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from drivetrain.errors import RunFailedError
from drivetrain.run.best import Best
from drivetrain.run.files import read_json, sync_directory, write_atomically, write_json

FORMAT_VERSION = 1
MODEL_FILE = "model.safetensors"
OPTIMISER_FILE = "optimizer.safetensors"
AVERAGED_FILE = "averaged.safetensors"
MANIFEST_FILE = "manifest.json"
_PARTIAL_PREFIX = ".partial-"


class CorruptCheckpointError(Exception):
    """A checkpoint that cannot be trusted; the message says which file and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a checkpoint on disk holds."""

    path: Path
    manifest: dict[str, Any]
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    averaged: dict[str, Tensor]

    @property
    def update(self) -> int:
        return int(self.manifest["update"])

    @property
    def best(self) -> Best | None:
        """The best validation by then; None where nothing was validated."""
        stored = self.manifest["state"].get("best", {})
        return None if stored.get("update") is None else Best.from_json(stored)

    @property
    def best_update(self) -> int | None:
        """The update that had validated best by then; None where nothing was validated."""
        return None if self.best is None else self.best.update


def save_checkpoint(
    parent: Path,
    *,
    update: int,
    model: Mapping[str, Tensor],
    optimiser: Mapping[str, Tensor],
    state: Mapping[str, Any],
    averaged: Mapping[str, Tensor] | None = None,
) -> Path:
    """Writes checkpoints/<update>; what was there before stays until the new one is whole."""
    tensors = {MODEL_FILE: model, OPTIMISER_FILE: optimiser}
    if averaged:
        tensors[AVERAGED_FILE] = averaged
    partial, final = parent / f"{_PARTIAL_PREFIX}{update}", parent / str(update)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        entries = {name: _write_tensors(partial / name, values) for name, values in tensors.items()}
        write_json(partial / MANIFEST_FILE, _manifest(update, entries, state))
        sync_directory(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        sync_directory(parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RunFailedError(_write_failure(parent, update, tensors, error)) from error
    return final


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint and proves every byte of it against the manifest."""
    try:
        manifest = read_json(path / MANIFEST_FILE)
        if manifest["format"] != FORMAT_VERSION:
            raise CorruptCheckpointError(f"{path}: format {manifest['format']} is not {FORMAT_VERSION}")
        if manifest["manifest_sha256"] != _digest_of(manifest):
            raise CorruptCheckpointError(f"{path / MANIFEST_FILE}: its own checksum does not match")
        contents = {name: _verified(path / name, entry) for name, entry in manifest["files"].items()}
        model, optimiser = (load_safetensors(contents[name]) for name in (MODEL_FILE, OPTIMISER_FILE))
        averaged = load_safetensors(contents[AVERAGED_FILE]) if AVERAGED_FILE in contents else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CorruptCheckpointError(f"{path}: {error}") from error
    return Checkpoint(path=path, manifest=manifest, model=model, optimiser=optimiser, averaged=averaged)


def checkpoint_paths(parent: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    if not parent.is_dir():
        return []
    return sorted((path for path in parent.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def newest_checkpoint(parent: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be trusted, and one line for each newer one that cannot."""
    problems: list[str] = []
    for path in reversed(checkpoint_paths(parent)):
        try:
            return load_checkpoint(path), problems
        except CorruptCheckpointError as error:
            problems.append(f"skipped a corrupt checkpoint: {error}")
    return None, problems


def prune_checkpoints(parent: Path, *, keep_last: int, keep_updates: set[int]) -> None:
    """Removes old checkpoints and what unfinished writes left behind."""
    paths = checkpoint_paths(parent)
    for path in paths[:-keep_last]:
        if int(path.name) not in keep_updates:
            shutil.rmtree(path, ignore_errors=True)
    sweep_partial(parent)


def drop_checkpoints_after(parent: Path, *, update: int) -> None:
    """Removes checkpoints beyond the one a run continues from: corrupt, and to be written again."""
    for path in checkpoint_paths(parent):
        if int(path.name) > update:
            shutil.rmtree(path, ignore_errors=True)


def sweep_partial(parent: Path) -> None:
    """Removes what a kill during a write left behind."""
    for path in parent.glob(f"{_PARTIAL_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Writes one file, and returns its entry in the manifest."""
    plain = {name: _standing_alone(tensor.detach().cpu()) for name, tensor in sorted(tensors.items())}
    content: bytes = save_safetensors(plain)
    write_atomically(path, content)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _standing_alone(tensor: Tensor) -> Tensor:
    """Safetensors takes no views of a larger piece of memory."""
    is_whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if is_whole else tensor.clone(memory_format=torch.contiguous_format)


def _manifest(update: int, entries: Mapping[str, dict[str, Any]], state: Mapping[str, Any]) -> dict[str, Any]:
    manifest = {
        "format": FORMAT_VERSION,
        "update": update,
        "files": dict(entries),
        "environment": {"torch": torch.__version__, "threads": torch.get_num_threads()},
        "state": dict(state),
    }
    return {**manifest, "manifest_sha256": _digest_of(manifest)}


def _digest_of(manifest: Mapping[str, Any]) -> str:
    covered = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _verified(path: Path, entry: Mapping[str, Any]) -> bytes:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry["sha256"]:
        raise CorruptCheckpointError(f"{path}: expected sha256 {entry['sha256'][:12]}, got {digest[:12]}")
    return content


def _write_failure(
    parent: Path, update: int, files: Mapping[str, Mapping[str, Tensor]], error: OSError
) -> str:
    needed = sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values())
    kept = checkpoint_paths(parent)
    stays = f"the checkpoint of update {kept[-1].name} stays" if kept else "there is no earlier checkpoint"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = _free_bytes(parent)
        return (
            f"the disk is full: the checkpoint of update {update} needs about {needed} bytes, {free} are "
            f"free in {parent}; {stays}, and the same command continues once there is room."
        )
    return f"the checkpoint of update {update} could not be written to {parent}: {error.strerror}; {stays}."


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize
