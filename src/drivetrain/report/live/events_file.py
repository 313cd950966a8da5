"""Reads a metrics.jsonl that grows: each time only the lines that were appended since."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Appended", "EventsFile"]

_MOST_BYTES = 2**23
_TAIL_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Complete lines that are new; `is_fresh` if they are the first ones of a new or replaced file."""

    lines: list[bytes]
    is_fresh: bool
    has_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How far a file was read: which file it was, the offset, and the bytes before the offset."""

    inode: int
    offset: int
    tail: bytes


class EventsFile:
    """The lines of one file, in the order in which they appear."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_read = 0
        self._place: _Place | None = None

    def read_new(self) -> Appended:
        """The lines since the last call; all of them if the file shrank, was replaced or is gone."""
        try:
            # Opened anew each time: a network disk then asks its server for the size. A pipe must not block.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return self._gone()
        try:
            found = os.fstat(descriptor)
            return self._read(descriptor, found) if stat.S_ISREG(found.st_mode) else self._gone()
        finally:
            os.close(descriptor)

    def _gone(self) -> Appended:
        was_there, self._place = self._place is not None, None
        return Appended(lines=[], is_fresh=was_there)

    def _read(self, descriptor: int, found: os.stat_result) -> Appended:
        place = self._place
        is_fresh = place is None or not self._continues(descriptor, found, place)
        offset = 0 if place is None or is_fresh else place.offset
        if offset == found.st_size and not is_fresh:
            return Appended(lines=[], is_fresh=False)
        content = os.pread(descriptor, _MOST_BYTES, offset)
        self.bytes_read += len(content)
        # A last line without its end is still being written; a line that is too long is passed over.
        complete = content[: content.rfind(b"\n") + 1] or (content if len(content) == _MOST_BYTES else b"")
        tail = complete[-_TAIL_BYTES:] if complete else (place.tail if place and not is_fresh else b"")
        self._place = _Place(inode=found.st_ino, offset=offset + len(complete), tail=tail)
        return Appended(lines=complete.splitlines(), is_fresh=is_fresh, has_more=len(content) == _MOST_BYTES)

    def _continues(self, descriptor: int, found: os.stat_result, place: _Place) -> bool:
        """Whether this is the file that was read before, with what was read still in it."""
        if found.st_ino != place.inode or found.st_size < place.offset:
            return False
        if found.st_size == place.offset:
            return True
        return os.pread(descriptor, len(place.tail), place.offset - len(place.tail)) == place.tail
