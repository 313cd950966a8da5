"""What a look at a folder of files found, kept in the user's cache folder for the next start."""

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

# To be raised whenever scans find more, or find something else, in the same files.
_VERSION = 1
# A file may change again within one tick of its file system's clock, which is up to two seconds long.
_SETTLED_S = 2.0


class KeptScan:
    """The answer to a look at the same files under the same settings, where one was kept.

    A file is the same by path, length and both times of its last change.
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
        """What was kept; empty where nothing was."""
        return read_answer(self._path, "scan", marks=self._marks)

    def keep(self, answer: Answer) -> None:
        """In the place of what an earlier look at the folder found."""
        keep_answer(self._path, "scan", marks=self._marks, answer=answer)


def _digest(files: Sequence[str]) -> str | None:
    """None where a file is too new to be told from what it may be in a moment, or cannot be looked at."""
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
