"""Whether a run goes on, from what lies in its directory: it may train on another host."""

import os
import socket
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from drivetrain.core.files import read_json
from drivetrain.store.heartbeat import FOLDER, Heartbeat, heartbeat_of
from drivetrain.store.lock import is_locked

__all__ = ["Beat", "Pulse", "State", "first_beat", "state_now", "state_of", "state_of_job"]

State = Literal["running", "finished", "stopped"]

# A heartbeat comes every two seconds; some network disks show a change only after many more.
_LONGEST_BEAT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What rank 0 last wrote about itself, and when by the clock of the disk."""

    written_s: float
    content: Heartbeat


class Pulse:
    """When a file was last written.

    The clock of another host may be wrong, so a change that was seen here counts by the clock of this host.
    """

    def __init__(self) -> None:
        self._written_s: float | None = None
        self._seen_s: float | None = None

    def age_s(self, written_s: float) -> float:
        """Seconds since the last change; as long as no change was seen, by the time of the file."""
        now_s = time.monotonic()
        if self._written_s is not None and written_s != self._written_s:
            self._seen_s = now_s
        self._written_s = written_s
        by_its_time_s = max(0.0, time.time() - written_s)
        return by_its_time_s if self._seen_s is None else min(by_its_time_s, now_s - self._seen_s)


def first_beat(run: Path) -> Beat | None:
    """The heartbeat of rank 0, which writes the files of a run; None if there is none to read."""
    path = run / FOLDER / "rank-0.json"
    try:
        found = path.lstat()
        # A pipe would block, and a link could lead anywhere.
        if not stat.S_ISREG(found.st_mode):
            return None
        return Beat(written_s=found.st_mtime, content=heartbeat_of(read_json(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def state_of(*, has_summary: bool, is_held: bool, beat: Beat | None, silence_s: float) -> State:
    """The state of a run; `silence_s` is the age of its heartbeat.

    A lock counts only if it is held: on a shared disk, that of another host may be invisible.
    """
    if has_summary:
        return "finished"
    if is_held:
        return "running"
    is_alive = beat is not None and silence_s <= _LONGEST_BEAT_S and _may_be_alive(beat.content)
    return "running" if is_alive else "stopped"


def state_now(run: Path, *, has_summary: bool) -> State:
    """The state of a run that is looked at once."""
    if has_summary:
        return "finished"
    beat = first_beat(run)
    silence_s = 0.0 if beat is None else Pulse().age_s(beat.written_s)
    return state_of(has_summary=False, is_held=is_locked(run), beat=beat, silence_s=silence_s)


def state_of_job(record: Mapping[str, Any], *, is_held: bool, folds: Collection[State]) -> State:
    """The state of a cross-validation with this record and the states of its folds."""
    if is_held or "running" in folds:
        return "running"
    return "finished" if record.get("status") == "finished" else "stopped"


def _may_be_alive(beat: Heartbeat) -> bool:
    """Whether the rank has not said its last word and, on this host, its process exists."""
    if beat.is_over:
        return False
    return beat.host != socket.gethostname() or _exists(beat.pid)


def _exists(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError, TypeError):
        return False
    return True
