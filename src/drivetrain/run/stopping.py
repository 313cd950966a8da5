"""Requests to stop at the next update: SIGINT, SIGTERM (a second one ends at once), time that is up."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
