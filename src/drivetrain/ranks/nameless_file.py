"""A file without a name, which is gone with the last process that has it, however that one ends."""

import os
import tempfile
from multiprocessing.reduction import DupFd
from typing import IO, Any

__all__ = ["NamelessFile"]


class NamelessFile:
    """Made by one process and handed, as an argument, to one that it spawns; both see the same content."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        """The whole content; where the other process writes next stays as it is."""
        return os.pread(self.fileno(), os.fstat(self.fileno()).st_size, 0)

    def clear(self) -> None:
        """Drops the content."""
        os.ftruncate(self.fileno(), 0)

    def close(self) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (DupFd(self.fileno()),)


def _rebuilt(duplicate: Any) -> NamelessFile:
    return NamelessFile(os.fdopen(duplicate.detach(), "r+b", buffering=0))
