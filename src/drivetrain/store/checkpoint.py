"""Checkpoints: safetensors and a JSON manifest with checksums, in place by one rename.

A checkpoint holds no time, host or path, so equal weights are equal files. There is no generator or
loader state to keep: the update number says all.
"""

import errno
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drivetrain.core.errors import RunFailedError
from drivetrain.core.files import read_json, sync_directory, write_json
from drivetrain.store.best import Best
from drivetrain.store.checkpoint_paths import (
    checkpoint_paths,
    partial_path,
    put_in_place,
    sweep_partial,
    update_of,
)
from drivetrain.store.tensor_file import DamagedFileError, read_tensors, write_tensors

FORMAT_VERSION = 1
MODEL_FILE = "model.safetensors"
OPTIMISER_FILE = "optimizer.safetensors"
AVERAGED_FILE = "averaged.safetensors"
BUFFERS_FILE = "buffers.safetensors"
MANIFEST_FILE = "manifest.json"


class CorruptCheckpointError(Exception):
    """A checkpoint that cannot be trusted; the message says which file and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a checkpoint on disk holds; `buffers` are those that the model itself does not save."""

    path: Path
    manifest: dict[str, Any]
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    averaged: dict[str, Tensor]
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def without_tensors(self) -> "Checkpoint":
        """What is known of it once its tensors have been taken over, and need no memory any more."""
        return replace(self, model={}, optimiser={}, averaged={}, buffers={})

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
    buffers: Mapping[str, Tensor] | None = None,
) -> Path:
    """Writes checkpoints/<update>; what was there before stays until the new one is whole."""
    optional = {AVERAGED_FILE: averaged, BUFFERS_FILE: buffers}
    tensors = {MODEL_FILE: model, OPTIMISER_FILE: optimiser}
    tensors |= {name: values for name, values in optional.items() if values}
    partial = partial_path(parent, update)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        entries = {name: write_tensors(partial / name, values) for name, values in tensors.items()}
        write_json(partial / MANIFEST_FILE, _manifest(update, entries, state))
        sync_directory(partial)
        return put_in_place(partial, parent=parent, update=update)
    except OSError as error:
        with suppress(OSError):
            sweep_partial(parent)
        raise RunFailedError(_write_failure(parent, update, tensors, error)) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint and proves every byte of it against the manifest."""
    try:
        manifest = read_json(path / MANIFEST_FILE)
        if manifest["format"] != FORMAT_VERSION:
            raise CorruptCheckpointError(f"{path}: format {manifest['format']} is not {FORMAT_VERSION}")
        if manifest["manifest_sha256"] != _digest_of(manifest):
            raise CorruptCheckpointError(f"{path / MANIFEST_FILE}: its own checksum does not match")
        files = {name: read_tensors(path / name, entry) for name, entry in manifest["files"].items()}
        return Checkpoint(
            path=path,
            manifest=manifest,
            model=files[MODEL_FILE],
            optimiser=files[OPTIMISER_FILE],
            averaged=files.get(AVERAGED_FILE, {}),
            buffers=files.get(BUFFERS_FILE, {}),
        )
    except DamagedFileError as error:
        raise CorruptCheckpointError(str(error)) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, struct.error) as error:
        raise CorruptCheckpointError(f"{path}: {error}") from error


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
        if update_of(path) not in keep_updates:
            shutil.rmtree(path, ignore_errors=True)
    sweep_partial(parent)


def drop_checkpoints_after(parent: Path, *, update: int) -> None:
    """Removes checkpoints beyond the one a run continues from: corrupt, and to be written again."""
    for path in checkpoint_paths(parent):
        if update_of(path) > update:
            shutil.rmtree(path, ignore_errors=True)


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


def _write_failure(
    parent: Path, update: int, files: Mapping[str, Mapping[str, Tensor]], error: OSError
) -> str:
    needed = sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values())
    kept = checkpoint_paths(parent)
    stays = (
        f"the checkpoint of update {update_of(kept[-1])} stays" if kept else "there is no earlier checkpoint"
    )
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
