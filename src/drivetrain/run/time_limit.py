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

    def longest(self, what: str) -> float:
        """Seconds that are reserved for a step."""
        return self._needed_s.get(what, 0.0)

    def reserve(self, what: str, seconds: float) -> None:
        """A step that comes before the end has taken so long; the longest time of each counts."""
        self._needed_s[what] = max(seconds, self.longest(what))

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Reserves what the block takes."""
        begin_s = self._clock()
        yield
        self.reserve(what, self._clock() - begin_s)

    def is_up(self, *, beside: float = 0.0) -> bool:
        """Whether what is reserved, and the seconds `beside`, no longer fit into the time that is left."""
        return self._clock() + sum(self._needed_s.values()) + beside >= self._ends_s
