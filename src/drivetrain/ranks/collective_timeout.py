"""How long replicas wait for each other: long where nobody knows yet, then by what they have seen.

Every rank goes by its own clock and nobody needs the others' numbers: an update, and an event with the update
after it, last as long as those of the slowest rank, so all have seen about the same.
"""

import time
from collections.abc import Callable

__all__ = ["FIRST_UPDATE_TIMEOUT_S", "FIRST_VALIDATION_TIMEOUT_S", "CollectiveTimeout"]

# Kernel selection and compilation, and hosts that read data at different speeds.
FIRST_UPDATE_TIMEOUT_S = 1800.0
FIRST_VALIDATION_TIMEOUT_S = 6 * 3600.0
LEAST_EVENT_TIMEOUT_S = 1800.0
LEAST_UPDATE_TIMEOUT_S = 60.0
_TIMES_THE_LONGEST = 20


class CollectiveTimeout:
    """Sets the timeout of collectives as a run goes on; `clock` gives seconds."""

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
        """Seconds of the longest update so far; 0 as long as there is only the first, which may compile."""
        return self._longest_update_s

    def begin_run(self) -> None:
        """The first update is to come; it may compile."""
        self._began_s = self._clock()
        self._wait_at_most(FIRST_UPDATE_TIMEOUT_S)

    def begin_event(self, *, validates: bool) -> None:
        """Replicas meet again when the slowest has done its part of the event, a whole validation at most."""
        self._began_s, self._event_validates, self._last_update_s = self._clock(), validates, None
        longest = self._longest_event_s[validates]
        if validates and not longest:
            self._wait_at_most(FIRST_VALIDATION_TIMEOUT_S)
        else:
            self._wait_at_most(max(LEAST_EVENT_TIMEOUT_S, _TIMES_THE_LONGEST * longest))

    def end_update(self) -> None:
        """Within an execution all are about equally far."""
        now = self._clock()
        if self._last_update_s is None:
            self._note_event(now - self._began_s)
        else:
            self._longest_update_s = max(self._longest_update_s, now - self._last_update_s)
        self._last_update_s = now
        longest = self._longest_update_s or self._first_update_lasted_s
        self._wait_at_most(max(self._least_update_s, _TIMES_THE_LONGEST * longest))

    def _note_event(self, lasted_s: float) -> None:
        """The first update after an event waits for replicas that are still busy with it."""
        if not self._first_update_lasted_s:
            self._first_update_lasted_s = lasted_s
        if self._event_validates is not None:
            kind = self._event_validates
            self._longest_event_s[kind] = max(self._longest_event_s[kind], lasted_s)

    def _wait_at_most(self, seconds: float) -> None:
        if seconds != self._timeout_s:
            self._timeout_s = seconds
            self._set_timeout(seconds)
