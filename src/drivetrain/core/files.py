"""Files that are either wholly there or not there."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """A file beside the target; at the end of the block it is forced to disk and renamed into place."""
    beside = path.with_name(f".{path.name}.partial")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside the target, forces it to disk and renames it into place."""
    with open_atomically(path) as file:
        file.write(content)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """JSON with sorted keys, so that equal values are equal files."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} holds no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return value


def sync_directory(path: Path) -> None:
    """Forces a directory's entries to disk, so that a rename survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
