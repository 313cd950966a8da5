"""Caches the results of scanning a folder of files in the user's cache folder, for the next run."""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import PIL

from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer
from drivetrain.core.progress import counted
from drivetrain.core.version import VERSION

__all__ = ["KeptScan"]

Answer = dict[str, Any]

# Increase whenever a scan returns more, or something else, for the same files.
_VERSION = 1
# A file may change twice within one tick of the file system's clock, which on FAT is two seconds.
_SETTLED_S = 2.0


class KeptScan:
    """The cached result of a scan, valid for the same files and the same settings.

    A file counts as unchanged if its path, size, mtime and ctime are the same.
    """

    def __init__(self, kind: str, folder: Path, files: Sequence[str], *, settings: Mapping[str, Any]) -> None:
        place, digest = str(folder.resolve()), _digest(files)
        self._marks = {
            "folder": place,
            "files": digest,
            "version": _VERSION,
            "drivetrain": VERSION,
            "pillow": PIL.__version__,
            **settings,
        }
        self._path = None if digest is None else _path(f"{kind} {place}")

    def recall(self) -> Answer:
        """The cached result; empty if there is none."""
        return read_answer(self._path, "scan", marks=self._marks)

    def keep(self, answer: Answer) -> None:
        """Caches a result; replaces that of an earlier scan of the folder."""
        keep_answer(self._path, "scan", marks=self._marks, answer=answer)


def _digest(files: Sequence[str]) -> str | None:
    """A digest of all files; None if one is unreadable or so new that a change could go unnoticed."""
    digest = hashlib.sha256()
    newest_s = 0.0
    with closing(counted(files, total=len(files), what="looking for changed files")) as looks:
        for file in looks:
            try:
                status = os.stat(file)
            except OSError:
                return None
            newest_s = max(newest_s, status.st_mtime, status.st_ctime)
            known = (os.path.abspath(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            digest.update(repr(known).encode(errors="surrogateescape"))
    return None if time.time() - newest_s < _SETTLED_S else digest.hexdigest()


def _path(question: str) -> Path | None:
    folder = cache_folder()
    name = hashlib.sha256(question.encode(errors="surrogateescape")).hexdigest()[:16]
    return None if folder is None else folder / "scans" / f"{name}.json"
