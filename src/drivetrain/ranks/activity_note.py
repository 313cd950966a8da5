"""A note of what a rank is doing, which its launcher can read even after the rank died by SIGKILL.

The note lies in a memory mapping shared by both processes, so that it survives the rank and costs an update
next to nothing.
"""

import mmap
import os
import struct
import tempfile
from enum import IntEnum
from multiprocessing.reduction import DupFd
from typing import IO, Any

__all__ = ["ActivityNote", "Doing", "NamelessFile", "make_note_file", "own_note", "read_note", "take_up_note"]


class NamelessFile:
    """A file shared between a process and the one it spawns, passed as an argument.

    It has no name, so the system deletes it with the last process that holds it, however that one ends.
    """

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        """The whole content; leaves the position at which the other process writes next."""
        return os.pread(self.fileno(), os.fstat(self.fileno()).st_size, 0)

    def clear(self) -> None:
        """Deletes the content."""
        os.ftruncate(self.fileno(), 0)

    def close(self) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (DupFd(self.fileno()),)


def _rebuilt(duplicate: Any) -> NamelessFile:
    return NamelessFile(os.fdopen(duplicate.detach(), "r+b", buffering=0))


class Doing(IntEnum):
    """What a rank can be doing; 0 means that its training has not begun."""

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
    Doing.GRADIENT_SUM: "during the gradient all-reduce of update {number}",
    Doing.OPTIMISER: "during the optimiser step of update {number}",
    Doing.AFTER_UPDATE: "after update {update}",
    Doing.VALIDATION: "during the validation after update {update}",
    Doing.CHECKPOINT: "during the checkpoint after update {update}",
}


_PASSES = (Doing.FORWARD, Doing.BACKWARD, Doing.INPUT, Doing.WEIGHT)


# Four words: the update; the action, stage and micro-batch packed into one, since a reader must never see
# half of a change; the number of stages held; the length of the text that names the place.
_HEAD = struct.Struct("=QQQQ")


_ACTION_BITS, _STAGE_BITS = 8, 24


_MICRO_BATCH_SHIFT = _ACTION_BITS + _STAGE_BITS


_SIZE = mmap.PAGESIZE


class ActivityNote:
    """The side of the rank: a shared mapping whose words are written in well under a microsecond."""

    def __init__(self, file: NamelessFile) -> None:
        self._mapping = memoryview(mmap.mmap(file.fileno(), _SIZE))
        self._words = self._mapping[: _HEAD.size].cast("Q")

    def place(self, text: str, *, stages: int) -> None:
        """Notes once what this rank is, such as "stage 2 of replica 0", and how many stages it holds."""
        content = text.encode()[: _SIZE - _HEAD.size]
        self._mapping[_HEAD.size : _HEAD.size + len(content)] = content
        self._words[2], self._words[3] = stages, len(content)
        self._words[1] = Doing.READY

    def turn_to(self, doing: Doing, *, update: int) -> None:
        """Notes that this rank begins a part of an update, or what follows after `update` updates."""
        self._words[0] = update
        self._words[1] = doing

    def turn_to_pass(self, doing: Doing, stage: int, micro_batch: int) -> None:
        """Notes that this rank begins a forward or backward pass of a micro-batch in a stage."""
        # Plain integers: combining members of an IntEnum with | is slow, and this runs for every action.
        self._words[1] = int(doing) + (stage << _ACTION_BITS) + (micro_batch << _MICRO_BATCH_SHIFT)


def make_note_file() -> NamelessFile:
    """Makes the file of a note, in memory if the system can: a busy disk could stall the rank that writes."""
    file = None
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("drivetrain-note"), "r+b", buffering=0)
    note = NamelessFile(file)
    os.ftruncate(note.fileno(), _SIZE)
    return note


def read_note(file: NamelessFile) -> tuple[str, str]:
    """The place of a rank and what it was doing; both are empty if it never wrote its note."""
    content = file.read()
    update, action, stages, length = _HEAD.unpack_from(content)
    if not action:
        return "", ""
    doing = Doing(action & (1 << _ACTION_BITS) - 1)
    stage = action >> _ACTION_BITS & (1 << _STAGE_BITS) - 1
    micro_batch = action >> _MICRO_BATCH_SHIFT
    # The note counts finished updates; people count the running one from 1.
    activity = _PHRASES[doing].format(update=update, number=update + 1, micro_batch=micro_batch)
    if stages > 1 and doing in _PASSES:
        activity += f" in stage {stage}"
    return content[_HEAD.size : _HEAD.size + length].decode(errors="replace"), activity


_own: ActivityNote | None = None


def take_up_note(file: NamelessFile) -> None:
    """Makes `file` the note of this process."""
    global _own
    _own = ActivityNote(file)


def own_note() -> ActivityNote | None:
    """The note of this rank; None in a process that Drivetrain's own launcher did not start."""
    return _own
