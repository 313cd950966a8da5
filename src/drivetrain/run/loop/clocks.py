"""Where the time of a run and of its updates goes, and how fast an accelerator is by itself."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.reporting.replica_efficiency import ReplicaTimes, SumSeconds, read_sums

__all__ = ["RunClock", "UpdateTimes", "pace_updates"]

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


@dataclass(slots=True, kw_only=True)
class UpdateTimes:
    """What the updates of this process take from update `first` on, host events not counted.

    `execution_s` are the seconds of all of them, `fastest_update_s` those of the fastest, where it is known.
    """

    program: TrainingProgram
    first: int = 0
    updates_run: int = 0
    execution_s: float = 0.0
    fastest_update_s: float = math.inf
    _began_s: float = 0.0
    _processor_s: float = 0.0
    _feed_before: tuple[float, float] = (0.0, 0.0)
    _sums_before: SumSeconds = field(default_factory=SumSeconds)
    _sums: SumSeconds = field(default_factory=SumSeconds)
    _first_update: ReplicaTimes | None = None

    def begin_run(self, first: int) -> None:
        """Counts from now on."""
        self.first = first
        self._begin_feed()

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Counts the block's time, until the device is done too."""
        self._began_s, processor_s = time.perf_counter(), time.process_time()
        self._sums_before = read_sums(self.program)
        yield
        self.program.device.synchronise()
        self._sums = self._sums.added(read_sums(self.program)).added(self._sums_before, factor=-1.0)
        self.execution_s += time.perf_counter() - self._began_s
        self._processor_s += time.process_time() - processor_s

    def end_first_update(self, *, compiles: bool) -> None:
        """Keeps apart what the first update took, which the device must be done with."""
        took_s = time.perf_counter() - self._began_s
        if compiles:
            # What prepares the data was compiled meanwhile too.
            self._begin_feed()
        self._first_update = ReplicaTimes(
            execution_s=took_s,
            data_s=sum(self.feed_seconds),
            sums=read_sums(self.program).added(self._sums_before, factor=-1.0),
        )

    def _begin_feed(self) -> None:
        self._feed_before = (self.program.feed.data_seconds, self.program.feed.transfer_seconds)

    @property
    def first_update_s(self) -> float:
        """Seconds of the first update of this process; 0 before it is over."""
        return 0.0 if self._first_update is None else self._first_update.execution_s

    @property
    def usual_update_s(self) -> float | None:
        """Seconds of an update, the first one, which may compile, not counted; None before there is one."""
        updates = self.updates_run - 1
        return (self.execution_s - self.first_update_s) / updates if updates > 0 else None

    @property
    def feed_seconds(self) -> tuple[float, float]:
        """Seconds the updates waited for data, and for their transfer; set-up before them not counted."""
        feed, (data_s, transfer_s) = self.program.feed, self._feed_before
        return feed.data_seconds - data_s, feed.transfer_seconds - transfer_s

    @property
    def images_per_second(self) -> float:
        """Training throughput of this process."""
        return self.speed(self.first + self.updates_run, self.execution_s)

    @property
    def timed_samples(self) -> int:
        """The samples of the updates that `of_replica` counts."""
        begin = self.first + (1 if self.updates_run > 1 else 0)
        return self._samples(self.first + self.updates_run) - self._samples(begin)

    @property
    def processor_share(self) -> float | None:
        """How much of the threads' time in executions a CPU really worked; None where that says little."""
        waits_for_others = self.program.group.size > 1
        if not self.program.device.is_cpu or not self.execution_s or waits_for_others:
            return None
        return self._processor_s / (self.execution_s * torch.get_num_threads())

    def speed_now(self, finished: int) -> float:
        """Samples per second up to an update that has just finished."""
        return self.speed(finished, self.execution_s + time.perf_counter() - self._began_s)

    def speed(self, reached: int, until_s: float, *, since: tuple[int, float] | None = None) -> float:
        """Samples per second since another update, or since the first one, which may compile."""
        first = (self.first + 1, self.first_update_s) if reached > self.first + 1 else (self.first, 0.0)
        update, before_s = since or first
        seconds = until_s - before_s
        return (self._samples(reached) - self._samples(update)) / seconds if seconds else math.nan

    def of_replica(self) -> ReplicaTimes:
        """Of this replica until now; the first update, which compiles, counts where there is no other."""
        before = self._first_update if self.updates_run > 1 else None
        data_s = sum(self.feed_seconds)
        if before is None:
            return ReplicaTimes(execution_s=self.execution_s or math.inf, data_s=data_s, sums=self._sums)
        return ReplicaTimes(
            execution_s=self.execution_s - before.execution_s,
            data_s=data_s - before.data_s,
            sums=self._sums.added(before.sums, factor=-1.0),
        )

    def _samples(self, update: int) -> int:
        return self.program.order.samples_until(update)


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
