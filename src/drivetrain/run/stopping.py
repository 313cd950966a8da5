"""Requests to stop at the next update: SIGINT, SIGTERM (a second one ends at once), and the time of --max-
time.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import psutil

__all__ = ["StopRequest", "TimeLimit", "listen_for_stop", "process_began_s"]

_HANDLED = (signal.SIGINT, signal.SIGTERM)
# A queue may signal every process of a job by itself, beside the one that passes signals on.
_SAME_REQUEST_S = 0.5


class StopRequest:
    """Whether something asked the run to stop, and the status it then ends with."""

    def __init__(self) -> None:
        self.exit_status = 0
        self._signalled_s: float | None = None

    @property
    def made(self) -> bool:
        return self.exit_status != 0

    def make(self, exit_status: int) -> None:
        """Asks the run to stop at the next update."""
        self.exit_status = self.exit_status or exit_status

    def handle(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        now = time.monotonic()
        if self._signalled_s is not None and now - self._signalled_s > _SAME_REQUEST_S:
            os._exit(128 + signal_number)
        self._signalled_s = self._signalled_s or now
        self.make(128 + signal_number)


@contextmanager
def listen_for_stop() -> Iterator[StopRequest]:
    """Listens while the block runs; the former handlers come back after it."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    former = {number: signal.signal(number, request.handle) for number in _HANDLED}
    try:
        yield request
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


# The time of `--max-time`: a run stops early enough to have written its checkpoint when the time is up.


def process_began_s() -> float:
    """When this process began, in seconds since 1970: what a command line takes to start counts, too."""
    return psutil.Process().create_time()


class TimeLimit:
    """Seconds that a job may take since it began, less what it still needs once it is asked to stop."""

    def __init__(self, seconds: float, *, began_s: float, clock: Callable[[], float] = time.time) -> None:
        self._ends_s, self._clock = began_s + seconds, clock
        self._needed_s: dict[str, float] = {}
        self._guessed_s: dict[str, float] = {}

    @property
    def left_s(self) -> float:
        """Seconds until the time is up."""
        return max(0.0, self._ends_s - self._clock())

    def longest(self, what: str) -> float:
        """Seconds that are reserved for a step."""
        return self._needed_s.get(what, self._guessed_s.get(what, 0.0))

    def guess(self, what: str, seconds: float) -> None:
        """Reserves time for a step until it is known how long it takes."""
        self._guessed_s[what] = seconds

    def reserve(self, what: str, seconds: float) -> None:
        """A step that comes before the end has taken so long; the longest time of each counts."""
        self._needed_s[what] = max(seconds, self._needed_s.get(what, 0.0))

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Reserves what the block takes."""
        begin_s = self._clock()
        yield
        self.reserve(what, self._clock() - begin_s)

    def is_up(self, *, beside: float = 0.0) -> bool:
        """Whether what is reserved, and the seconds `beside`, no longer fit into the time that is left."""
        reserved_s = sum(map(self.longest, self._needed_s.keys() | self._guessed_s.keys()))
        return self._clock() + reserved_s + beside >= self._ends_s
