"""The time of `--max-time`: a run stops early enough to have written its checkpoint when the time is up."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

__all__ = ["TimeLimit", "process_began_s"]


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
