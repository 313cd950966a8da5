"""Measures where the time of a run goes, how long updates take, and the speed of the device by itself."""

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

# The first three runs warm up and record a captured update; at least one more is a plain replay.
_PACED_UPDATES = 5


class RunClock:
    """Seconds per part of a run and since its start; a continued run adds to the earlier time.

    `start_up_s` is the time before the loop: reading the data, building the model.
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
    """Times of the updates of this process from update `first` on, without logs, validations, checkpoints.

    `execution_s` is the total; `fastest_update_s` is the fastest single update, infinity if not measured.
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
        """Starts counting at update `first`."""
        self.first = first
        self._begin_feed()

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Measures the block, including the work it left queued on the device."""
        self._began_s, processor_s = time.perf_counter(), time.process_time()
        self._sums_before = read_sums(self.program)
        yield
        self.program.device.synchronise()
        self._sums = self._sums.added(read_sums(self.program)).added(self._sums_before, factor=-1.0)
        self.execution_s += time.perf_counter() - self._began_s
        self._processor_s += time.process_time() - processor_s

    def end_first_update(self, *, compiles: bool) -> None:
        """Stores the time of the first update separately; the device must be synchronised before."""
        took_s = time.perf_counter() - self._began_s
        if compiles:
            # The feed compiled its preparation in this update too: that time is not data loading.
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
        """Mean seconds of an update, without the first one, which may compile; None before the second."""
        updates = self.updates_run - 1
        return (self.execution_s - self.first_update_s) / updates if updates > 0 else None

    @property
    def feed_seconds(self) -> tuple[float, float]:
        """Seconds that updates waited for data and for its transfer, without the set-up of the feed."""
        feed, (data_s, transfer_s) = self.program.feed, self._feed_before
        return feed.data_seconds - data_s, feed.transfer_seconds - transfer_s

    @property
    def images_per_second(self) -> float:
        """Training throughput of this process."""
        return self.speed(self.first + self.updates_run, self.execution_s)

    @property
    def timed_samples(self) -> int:
        """Number of samples in the updates that `of_replica` counts."""
        begin = self.first + (1 if self.updates_run > 1 else 0)
        return self._samples(self.first + self.updates_run) - self._samples(begin)

    @property
    def processor_share(self) -> float | None:
        """Share of the threads' time in which a CPU really worked; None on accelerators and several ranks."""
        waits_for_others = self.program.group.size > 1
        if not self.program.device.is_cpu or not self.execution_s or waits_for_others:
            return None
        return self._processor_s / (self.execution_s * torch.get_num_threads())

    def speed_now(self, finished: int) -> float:
        """Samples per second up to an update that has just finished."""
        return self.speed(finished, self.execution_s + time.perf_counter() - self._began_s)

    def speed(self, reached: int, until_s: float, *, since: tuple[int, float] | None = None) -> float:
        """Samples per second since the update and time in `since`; by default since the first update."""
        first = (self.first + 1, self.first_update_s) if reached > self.first + 1 else (self.first, 0.0)
        update, before_s = since or first
        seconds = until_s - before_s
        return (self._samples(reached) - self._samples(update)) / seconds if seconds else math.nan

    def of_replica(self) -> ReplicaTimes:
        """Times of this rank so far; the first update, which may compile, counts only if it is alone."""
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


def pace_updates(
    program: TrainingProgram,
    first: int,
    last: int,
    *,
    goes_on: Callable[[int], bool],
    stops: Callable[[], bool],
) -> tuple[int, float]:
    """Runs the first few updates one by one; returns the next update and the seconds of the fastest one.

    The time without waiting for data is the speed of the device by itself. It is measured here because later
    updates are not synchronised, so device and host time cannot be told apart. On a CPU and with resident
    data nothing is measured: it would not be used.
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
