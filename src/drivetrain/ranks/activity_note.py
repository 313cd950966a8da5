"""What a rank is doing, left where its launcher reads it however the rank ends, by SIGKILL too."""

import mmap
import os
import struct
import tempfile
from enum import IntEnum
from multiprocessing.reduction import DupFd
from typing import IO, Any

__all__ = ["ActivityNote", "Doing", "NamelessFile", "make_note_file", "own_note", "read_note", "take_up_note"]


# A file without a name, which is gone with the last process that has it, however that one ends.


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


class Doing(IntEnum):
    """What a rank can be at; 0 is before its training begins."""

    READY = 1
    UPDATE = 2
    FORWARD = 3
    BACKWARD = 4
    INPUT = 5
    WEIGHT = 6
    GRADIENT_SUM = 7
    OPTIMISER = 8
    AFTER_UPDATE = 9
    VALIDATION = 10
    CHECKPOINT = 11


_PHRASES = {
    Doing.READY: "before its first update",
    Doing.UPDATE: "at the start of update {number}",
    Doing.FORWARD: "during the forward pass of micro-batch {micro_batch} of update {number}",
    Doing.BACKWARD: "during the backward pass of micro-batch {micro_batch} of update {number}",
    Doing.INPUT: "during the backward pass (inputs) of micro-batch {micro_batch} of update {number}",
    Doing.WEIGHT: "during the backward pass (weights) of micro-batch {micro_batch} of update {number}",
    Doing.GRADIENT_SUM: "during the gradient sum of update {number}",
    Doing.OPTIMISER: "during the optimiser's part of update {number}",
    Doing.AFTER_UPDATE: "after update {update}",
    Doing.VALIDATION: "during the validation after update {update}",
    Doing.CHECKPOINT: "during the checkpoint after update {update}",
}


_PASSES = (Doing.FORWARD, Doing.BACKWARD, Doing.INPUT, Doing.WEIGHT)


# The update; the action in one word, so that nobody sees a half of it; stages held; length of the place.
_HEAD = struct.Struct("=QQQQ")


_ACTION_BITS, _STAGE_BITS = 8, 24


_MICRO_BATCH_SHIFT = _ACTION_BITS + _STAGE_BITS


_SIZE = mmap.PAGESIZE


class ActivityNote:
    """A rank's own end: a shared mapping, whose words are written in well under a microsecond."""

    def __init__(self, file: NamelessFile) -> None:
        self._mapping = memoryview(mmap.mmap(file.fileno(), _SIZE))
        self._words = self._mapping[: _HEAD.size].cast("Q")

    def place(self, text: str, *, stages: int) -> None:
        """Says once what this rank is, as in "stage 2 of replica 0", and how many stages it holds."""
        content = text.encode()[: _SIZE - _HEAD.size]
        self._mapping[_HEAD.size : _HEAD.size + len(content)] = content
        self._words[2], self._words[3] = stages, len(content)
        self._words[1] = Doing.READY

    def turn_to(self, doing: Doing, *, update: int) -> None:
        """From now on this rank is at a part of an update, or at what comes after so many updates."""
        self._words[0] = update
        self._words[1] = doing

    def turn_to_pass(self, doing: Doing, stage: int, micro_batch: int) -> None:
        """From now on this rank takes a micro-batch of the update through a stage."""
        # Added, as an enumeration is slow to combine.
        self._words[1] = int(doing) + (stage << _ACTION_BITS) + (micro_batch << _MICRO_BATCH_SHIFT)


def make_note_file() -> NamelessFile:
    """What the launcher hands to a rank; in memory where the system can, as disks may make a writer wait."""
    file = None
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("drivetrain-note"), "r+b", buffering=0)
    note = NamelessFile(file)
    os.ftruncate(note.fileno(), _SIZE)
    return note


def read_note(file: NamelessFile) -> tuple[str, str]:
    """What a rank is and what it was at, both empty where it never said."""
    content = file.read()
    update, action, stages, length = _HEAD.unpack_from(content)
    if not action:
        return "", ""
    doing = Doing(action & (1 << _ACTION_BITS) - 1)
    stage = action >> _ACTION_BITS & (1 << _STAGE_BITS) - 1
    micro_batch = action >> _MICRO_BATCH_SHIFT
    # An update under way has a number one higher than how many there were before it.
    activity = _PHRASES[doing].format(update=update, number=update + 1, micro_batch=micro_batch)
    if stages > 1 and doing in _PASSES:
        activity += f" through stage {stage}"
    return content[_HEAD.size : _HEAD.size + length].decode(errors="replace"), activity


_own: ActivityNote | None = None


def take_up_note(file: NamelessFile) -> None:
    """This process is the rank whose note the file is."""
    global _own
    _own = ActivityNote(file)


def own_note() -> ActivityNote | None:
    """This rank's note; None in a process that no own launcher started."""
    return _own
