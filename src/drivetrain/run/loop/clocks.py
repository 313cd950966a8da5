"""Where the time of a run goes, and how fast an accelerator is by itself."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.program.training import TrainingProgram

__all__ = ["RunClock", "pace_updates"]

# Recording an update takes three; after that there must be one that is only repeated.
_PACED_UPDATES = 5


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


# How fast an accelerator is by itself, found in the first updates of a streamed run.


def pace_updates(
    program: TrainingProgram,
    first: int,
    last: int,
    *,
    goes_on: Callable[[int], bool],
    stops: Callable[[], bool],
) -> tuple[int, float]:
    """Runs the first of some updates one by one; returns the next one, and the seconds of the fastest.

    Waiting for data is not counted. Later the device is not waited for, so nobody could tell its time from
    the host's; on a CPU, and where data are resident, nobody has to.
    """
    fastest_s, update = math.inf, first
    if program.device.is_cpu or not isinstance(program.feed, StreamFeed):
        return first, fastest_s
    while update < min(last, first + _PACED_UPDATES) and not stops():
        program.device.synchronise()
        began_s, waited_s = time.perf_counter(), program.feed.data_seconds
        update = program.execute(update, update + 1, goes_on=goes_on)
        program.device.synchronise()
        took_s = time.perf_counter() - began_s - (program.feed.data_seconds - waited_s)
        fastest_s = min(fastest_s, took_s)
    return update, fastest_s
