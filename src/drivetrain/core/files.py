"""Atomic files: after a crash a file is either complete or absent."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def open_atomically(path: Path, *, synced: bool = True) -> Iterator[BinaryIO]:
    """Opens a temporary file beside the target; at the end of the block it is synced and renamed.

    Without the sync it may be lost in a power failure, but nobody waits for the disk.
    """
    beside = path.with_name(f".{path.name}.partial")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Writes to a temporary file beside the target, syncs it to disk and renames it into place."""
    with open_atomically(path, synced=synced) as file:
        file.write(content)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON with sorted keys, so that equal values give equal files."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} does not contain valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not contain a JSON object")
    return value


def sync_directory(path: Path) -> None:
    """Syncs a directory's entries to disk, so that a rename survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
