"""SIGINT and SIGTERM: the first asks the run to stop at the next update, the second ends it at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether a signal asked the run to stop."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    @property
    def made(self) -> bool:
        return self.signal_number is not None

    @property
    def exit_status(self) -> int:
        assert self.signal_number is not None
        return 128 + self.signal_number

    def handle(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.made:
            os._exit(128 + signal_number)
        self.signal_number = signal_number


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
