"""Writes, reads, finds and removes checkpoints: safetensors files and a JSON manifest with checksums.

A checkpoint appears under its name by one rename, so it is complete or absent. It holds no time, host or
path, so equal weights give equal files. It needs no state of random generators or loaders: the order of
samples and all random numbers follow from seed and update number.
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

# Raise it for every change that older programs would misread: they refuse other versions.
FORMAT_VERSION = 1
MODEL_FILE = "model.safetensors"
OPTIMISER_FILE = "optimizer.safetensors"
AVERAGED_FILE = "averaged.safetensors"
BUFFERS_FILE = "buffers.safetensors"
MANIFEST_FILE = "manifest.json"


class CorruptCheckpointError(Exception):
    """A damaged checkpoint; the message names the file and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The content of a checkpoint; `buffers` are the non-persistent ones, missing in `state_dict()`."""

    path: Path
    manifest: dict[str, Any]
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    averaged: dict[str, Tensor]
    buffers: dict[str, Tensor] = field(default_factory=dict)

    def without_tensors(self) -> "Checkpoint":
        """A copy with the manifest only, to free the memory of tensors that were already loaded."""
        return replace(self, model={}, optimiser={}, averaged={}, buffers={})

    @property
    def update(self) -> int:
        return int(self.manifest["update"])

    @property
    def best(self) -> Best | None:
        """The best validation up to this checkpoint; None if there was none."""
        stored = self.manifest["state"].get("best", {})
        return None if stored.get("update") is None else Best.from_json(stored)

    @property
    def best_update(self) -> int | None:
        """The update of the best validation up to this checkpoint; None if there was none."""
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
    """Writes checkpoints/<update>; an older one of the same update stays until the new one is complete."""
    optional = {AVERAGED_FILE: averaged, BUFFERS_FILE: buffers}
    tensors = {MODEL_FILE: model, OPTIMISER_FILE: optimiser}
    tensors |= {name: values for name, values in optional.items() if values}
    partial = partial_path(parent, update)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        entries = {name: write_tensors(partial / name, values) for name, values in tensors.items()}
        write_json(partial / MANIFEST_FILE, _manifest(update, entries, state))
        # Before it gets its final name: under that name a checkpoint must be complete even after a power cut.
        sync_directory(partial)
        return put_in_place(partial, parent=parent, update=update)
    except OSError as error:
        with suppress(OSError):
            sweep_partial(parent)
        raise RunFailedError(_write_failure(parent, update, tensors, error)) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint and checks every byte against the checksums in the manifest."""
    try:
        manifest = read_json(path / MANIFEST_FILE)
        # Before the checksum: another format may compute it differently and would look damaged.
        if manifest["format"] != FORMAT_VERSION:
            raise CorruptCheckpointError(
                f"{path}: unknown format {manifest['format']}, expected {FORMAT_VERSION}"
            )
        if manifest["manifest_sha256"] != _digest_of(manifest):
            raise CorruptCheckpointError(f"{path / MANIFEST_FILE}: checksum does not match")
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
    """The newest intact checkpoint, and one warning for each newer one that is damaged."""
    problems: list[str] = []
    for path in reversed(checkpoint_paths(parent)):
        try:
            return load_checkpoint(path), problems
        except CorruptCheckpointError as error:
            problems.append(f"skipped a corrupt checkpoint: {error}")
    return None, problems


def prune_checkpoints(parent: Path, *, keep_last: int, keep_updates: set[int]) -> None:
    """Removes all but the newest `keep_last` and `keep_updates`, and leftovers of unfinished writes."""
    paths = checkpoint_paths(parent)
    for path in paths[:-keep_last]:
        if update_of(path) not in keep_updates:
            shutil.rmtree(path, ignore_errors=True)
    sweep_partial(parent)


def drop_checkpoints_after(parent: Path, *, update: int) -> None:
    """Removes checkpoints newer than the one a run continues from: they are damaged and will be rewritten."""
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
    stays = f"the checkpoint of update {update_of(kept[-1])} is intact" if kept else "there is no earlier one"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = _free_bytes(parent)
        return (
            f"the disk is full: the checkpoint of update {update} needs about {needed} bytes, but {free} are "
            f"free in {parent}; {stays}, and the same command continues once there is room."
        )
    return f"the checkpoint of update {update} could not be written to {parent}: {error.strerror}; {stays}."


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize
