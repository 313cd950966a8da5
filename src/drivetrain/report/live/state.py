"""Whether a run goes on, from what lies in its directory: it may train on another host."""

import os
import socket
import time
from typing import Literal

from drivetrain.report.live.heartbeat import Beat

__all__ = ["Pulse", "State", "state_of"]

State = Literal["running", "finished", "stopped"]

# A heartbeat comes at least every 10 s; two of them may be lost or late.
_LONGEST_BEAT_S = 30.0
_SHORTEST_SILENCE_S = 60.0
_SILENT_EVENTS = 3.0


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


def state_of(
    *,
    has_summary: bool,
    is_locked: bool,
    beat: Beat | None,
    silence_s: float,
    seconds_per_event: float,
) -> State:
    """The state of a run; `silence_s` is the age of its newest heartbeat or, without one, of its events.

    A lock counts only if it is held: on a shared disk, that of another host may be invisible.
    """
    if has_summary:
        return "finished"
    if is_locked:
        return "running"
    if beat is not None:
        return "running" if silence_s <= _LONGEST_BEAT_S and _may_be_alive(beat) else "stopped"
    patience_s = max(_SHORTEST_SILENCE_S, _SILENT_EVENTS * seconds_per_event)
    return "running" if silence_s <= patience_s else "stopped"


def _may_be_alive(beat: Beat) -> bool:
    """Whether the rank has not said its last word and, on this host, its process exists."""
    if beat.content.get("state") in ("finished", "stopped"):
        return False
    pid = beat.content.get("pid")
    if beat.content.get("host") != socket.gethostname() or not isinstance(pid, int):
        return True
    return pid > 0 and _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
