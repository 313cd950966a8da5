"""updates.npz: loss, score, learning rate and other values of every update, with a checksum."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.files import write_atomically

__all__ = ["DamagedHistoryError", "load_history", "read_history", "write_history"]

# The checksum is a column of its own, computed over all others; files of older versions have none.
_CHECKSUM = "sha256"
# What numpy and zipfile raise for files that were cut short or overwritten.
_DAMAGE = (OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class DamagedHistoryError(Exception):
    """updates.npz is damaged or missing; the message says which."""


def write_history(path: Path, columns: Mapping[str, NDArray[np.float64]]) -> None:
    """Writes the values of all updates so far."""
    content = io.BytesIO()
    stored: dict[str, NDArray[np.generic]] = {**columns, _CHECKSUM: _checksum(columns)}
    np.savez(content, allow_pickle=False, **stored)
    write_atomically(path, content.getvalue())


def load_history(path: Path) -> dict[str, NDArray[np.float64]]:
    """The values written so far; empty if the file is damaged or missing."""
    try:
        return read_history(path)
    except DamagedHistoryError:
        return {}


def read_history(path: Path) -> dict[str, NDArray[np.float64]]:
    """The values written so far, checked against the checksum."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
    except FileNotFoundError as error:
        raise DamagedHistoryError(f"{path} is missing") from error
    except _DAMAGE as error:
        raise DamagedHistoryError(f"{path} is damaged") from error
    checksum = columns.pop(_CHECKSUM, None)
    if checksum is not None and checksum.tobytes() != _checksum(columns).tobytes():
        raise DamagedHistoryError(f"{path} is damaged")
    return columns


def _checksum(columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.uint8]:
    digest = hashlib.sha256()
    for name in sorted(columns):
        digest.update(f"{name} {columns[name].dtype.str} {columns[name].shape} ".encode())
        digest.update(np.ascontiguousarray(columns[name]).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
