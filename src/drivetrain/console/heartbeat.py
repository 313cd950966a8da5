"""Calls something again and again from a thread, until it is stopped."""

import threading
from collections.abc import Callable

__all__ = ["Heartbeat"]


class Heartbeat:
    """`beat` is called every `period_s`; `stop` waits for a call that is under way."""

    def __init__(self, beat: Callable[[], None], *, period_s: float) -> None:
        self._beat, self._period_s = beat, period_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(self._period_s):
            self._beat()
