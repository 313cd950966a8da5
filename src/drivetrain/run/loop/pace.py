"""How fast an accelerator is by itself, found in the first updates of a streamed run."""

import math
import time
from collections.abc import Callable

from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.program.training import TrainingProgram

__all__ = ["pace_updates"]

# Recording an update takes three; after that there must be one that is only repeated.
_PACED_UPDATES = 5


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
