"""The collective timeout of a run: long at first, then a multiple of the longest update or event so far.

Each rank uses its own clock and needs no numbers from others. Updates end with a collective, so an update,
and a host event together with the update after it, take as long on every rank as on the slowest one: all
ranks measure about the same.
"""

import time
from collections.abc import Callable

__all__ = ["FIRST_UPDATE_TIMEOUT_S", "FIRST_VALIDATION_TIMEOUT_S", "CollectiveTimeout"]

# Generous, since nothing has been measured yet: the first update selects or compiles kernels, and hosts may
# read data at very different speeds.
FIRST_UPDATE_TIMEOUT_S = 1800.0
# The first validation may be a whole pass over a large data set while other ranks wait.
FIRST_VALIDATION_TIMEOUT_S = 6 * 3600.0
# Writing a checkpoint to a busy file system varies far more than an update does.
LEAST_EVENT_TIMEOUT_S = 1800.0
# A multiple of a very short update would be a fraction of a second, which any pause of a rank exceeds.
LEAST_UPDATE_TIMEOUT_S = 60.0
# Trades how soon a hung rank is noticed against false alarms on a shared machine.
_TIMES_THE_LONGEST = 20


class CollectiveTimeout:
    """Adapts the collective timeout while a run goes on; `clock` returns seconds."""

    def __init__(
        self,
        set_timeout: Callable[[float], None],
        *,
        least_update_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._set_timeout, self._clock = set_timeout, clock
        self._least_update_s = LEAST_UPDATE_TIMEOUT_S if least_update_s is None else least_update_s
        self._timeout_s: float | None = None
        self._began_s = clock()
        self._event_validates: bool | None = None
        self._last_update_s: float | None = None
        self._first_update_lasted_s = 0.0
        self._longest_update_s = 0.0
        self._longest_event_s = {True: 0.0, False: 0.0}

    @property
    def longest_update_s(self) -> float:
        """Seconds of the longest update so far, without the first, which may compile; 0 before the second."""
        return self._longest_update_s

    def begin_run(self) -> None:
        """Sets the timeout for the first update, which may compile."""
        self._began_s = self._clock()
        self._wait_at_most(FIRST_UPDATE_TIMEOUT_S)

    def begin_event(self, *, validates: bool) -> None:
        """Sets the timeout for a host event: replicas meet again when the slowest has finished its part."""
        self._began_s, self._event_validates, self._last_update_s = self._clock(), validates, None
        longest = self._longest_event_s[validates]
        if validates and not longest:
            self._wait_at_most(FIRST_VALIDATION_TIMEOUT_S)
        else:
            self._wait_at_most(max(LEAST_EVENT_TIMEOUT_S, _TIMES_THE_LONGEST * longest))

    def end_update(self) -> None:
        """Measures an update and sets the timeout for the next; between host events ranks run in step."""
        now = self._clock()
        if self._last_update_s is None:
            self._note_event(now - self._began_s)
        else:
            self._longest_update_s = max(self._longest_update_s, now - self._last_update_s)
        self._last_update_s = now
        longest = self._longest_update_s or self._first_update_lasted_s
        self._wait_at_most(max(self._least_update_s, _TIMES_THE_LONGEST * longest))

    def _note_event(self, lasted_s: float) -> None:
        """Counts an event together with the first update after it, which waits for slower replicas."""
        if not self._first_update_lasted_s:
            self._first_update_lasted_s = lasted_s
        if self._event_validates is not None:
            kind = self._event_validates
            self._longest_event_s[kind] = max(self._longest_event_s[kind], lasted_s)

    def _wait_at_most(self, seconds: float) -> None:
        if seconds != self._timeout_s:
            self._timeout_s = seconds
            self._set_timeout(seconds)
