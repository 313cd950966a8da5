"""Requests to stop after the next update: SIGINT, SIGTERM (a second one ends at once) and --max-time."""

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
# A batch queue may signal every process of a job while the launcher also forwards the signal. Two signals
# within this time count as one request, not as a second one that ends the run at once.
_SAME_REQUEST_S = 0.5


class StopRequest:
    """Whether the run was asked to stop, and the exit status it then ends with."""

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
    """Handles SIGINT and SIGTERM inside the block; restores the previous handlers afterwards."""
    request = StopRequest()
    # Python allows signal handlers to be set in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    former = {number: signal.signal(number, request.handle) for number in _HANDLED}
    try:
        yield request
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def process_began_s() -> float:
    """When this process started, in seconds since 1970: --max-time includes the time of imports."""
    return psutil.Process().create_time()


class TimeLimit:
    """--max-time: stops a run early enough that its last checkpoint is written before the time is up."""

    def __init__(self, seconds: float, *, began_s: float, clock: Callable[[], float] = time.time) -> None:
        self._ends_s, self._clock = began_s + seconds, clock
        self._needed_s: dict[str, float] = {}
        self._guessed_s: dict[str, float] = {}

    @property
    def left_s(self) -> float:
        """Seconds until the time is up."""
        return max(0.0, self._ends_s - self._clock())

    def longest(self, what: str) -> float:
        """Seconds reserved for a step: the longest measured so far, else the guess."""
        return self._needed_s.get(what, self._guessed_s.get(what, 0.0))

    def guess(self, what: str, seconds: float) -> None:
        """Reserves time for a step until it is known how long it takes."""
        self._guessed_s[what] = seconds

    def reserve(self, what: str, seconds: float) -> None:
        """Reserves the measured time of a step that will run again before the end; the longest counts."""
        self._needed_s[what] = max(seconds, self._needed_s.get(what, 0.0))

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Measures the block and reserves its time."""
        begin_s = self._clock()
        yield
        self.reserve(what, self._clock() - begin_s)

    def is_up(self, *, beside: float = 0.0) -> bool:
        """Whether the reserved time plus `beside` seconds no longer fits into the time left."""
        reserved_s = sum(map(self.longest, self._needed_s.keys() | self._guessed_s.keys()))
        return self._clock() + reserved_s + beside >= self._ends_s
