"""Where the time of a run goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class RunClock:
    """Seconds per part of a run, and since its start; a continued run goes on counting.

    `start_up_s` is what came before: reading the data, building the model.
    """

    def __init__(self, *, elapsed_before_s: float = 0.0, start_up_s: float = 0.0) -> None:
        self.start_up_s = start_up_s
        self._start = time.perf_counter()
        self._elapsed_before_s = elapsed_before_s
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Counts the block's time as time of `part`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - begin

    @property
    def own_s(self) -> float:
        """Seconds since this process began the run."""
        return time.perf_counter() - self._start

    @property
    def elapsed_s(self) -> float:
        """Seconds of the whole run, earlier processes included."""
        return self._elapsed_before_s + self.own_s
