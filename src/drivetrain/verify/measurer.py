"""Measures layouts, caches the one-process results, and shows the progress."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import DtypeName, Measurement, Starts, measure_rank
from drivetrain.verify.subject import Subject
from drivetrain.verify.time_left import TimeLeft

__all__ = ["Measurer"]

# The collective timeout of the ranks: a fixed allowance for starting processes, plus a multiple of what one
# process took. All ranks share the cores of one machine, so each is much slower than one process alone.
_START_S = 600.0
_MOST_PATIENCE = 50.0
# Shorter verifications are not announced.
_LONG_S = 120.0


class Measurer:
    """Runs one-process layouts in this process, and others on a pool of ranks that lives until `close`.

    `planned` are the measurements that are sure to be made, each at its first point. If `pool` is given, its
    ranks are used and no others are started.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        reporter: Reporter,
        planned: Sequence[tuple[Layout, DtypeName]],
        pool: RankPool | None = None,
    ) -> None:
        self._subject, self._reporter = subject, reporter
        self._total = len(planned)
        self._ranks = max((layout.ranks for layout, _ in planned), default=1)
        self._time_left = TimeLeft(planned)
        # The same thread count everywhere: it determines how sums are rounded, and thus on which side of 0 a
        # value falls.
        self._threads = subject.recipe.num_threads or 1
        self._pool, self._is_borrowed = pool, pool is not None
        self._alone: dict[tuple[Layout, DtypeName, int], Measurement] = {}
        self._exact: dict[tuple[Layout, int], Measurement | None] = {}
        self._noted: dict[tuple[Layout, DtypeName, int], int] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="drivetrain-verify-")
        self._done = 0
        self._longest_s = 0.0
        reporter.start_progress("verifying", done=0, total=self._total)

    def close(self) -> None:
        """Stops the ranks and the progress bar, and deletes the saved states."""
        self._reporter.stop_progress()
        self._folder.cleanup()
        if self._pool is not None and not self._is_borrowed:
            self._pool.close()

    def alone(self, layout: Layout, dtype: DtypeName, *, point: int = 0) -> Measurement:
        """The result of one process, measured on first use; each `point` has a seed of its own."""
        key = (layout, dtype, point)
        if key not in self._alone:
            with self._shown(layout, dtype, point):
                starts = self._starts(layout, dtype, point, leads=True)
                self._alone[key] = self._measured_here(layout, dtype, point, starts)
            if self._done == 1:
                self._announce_length()
        return self._alone[key]

    def exact(self, layout: Layout, *, point: int = 0) -> Measurement | None:
        """The result of one process in float64 from its float32 states.

        None if the model draws from torch's generator or does not run in float64: then there is no exact
        result to compare with.
        """
        key = (layout, point)
        if key not in self._exact:
            self._exact[key] = self._measured_exactly(layout, point)
        return self._exact[key]

    def measured(
        self, layout: Layout, dtype: DtypeName, *, reference: Layout, point: int = 0
    ) -> tuple[Measurement, bool]:
        """The result of a layout from the reference's states, and whether ranks of the same stages agree."""
        self.alone(reference, dtype, point=point)
        starts = self._starts(reference, dtype, point, leads=False)
        with self._shown(layout, dtype, point):
            if layout.ranks == 1:
                return self._measured_here(layout, dtype, point, starts), True
            work = (self._subject.at_point(point), layout, dtype, None, starts)
            parts = self._started_pool().run(measure_rank, *work, ranks=layout.ranks)
        ends = {(part.device, part.digest) for part in parts}
        return parts[0].measurement, len(ends) == layout.devices

    def spoilt(self, layout: Layout, dtype: DtypeName, *, point: int, gradient: str) -> Measurement:
        """The first update of a layout whose last replica computes one wrong gradient."""
        work = (self._subject.at_point(point).for_one_update(), layout, dtype, gradient)
        with self._reporter.showing(f"negative control in {dtype}"):
            if layout.ranks == 1:
                with _threads(self._threads):
                    parts = [measure_rank(ALONE, *work)]
            else:
                parts = self._started_pool().run(measure_rank, *work, ranks=layout.ranks)
        measurement = parts[0].measurement
        assert measurement is not None
        return measurement

    def _starts(self, layout: Layout, dtype: DtypeName, point: int, *, leads: bool) -> Starts:
        """The folder with the states of a one-process layout."""
        number = self._noted.setdefault((layout, dtype, point), len(self._noted))
        folder = Path(self._folder.name) / str(number)
        folder.mkdir(exist_ok=True)
        return Starts(folder=str(folder), leads=leads)

    def _measured_exactly(self, layout: Layout, point: int) -> Measurement | None:
        if self.alone(layout, "float32", point=point).draws_from_torch:
            return None
        starts = replace(self._starts(layout, "float32", point, leads=False), first=0)
        try:
            with self._shown(layout, "float64", point, is_planned=False):
                return self._measured_here(layout, "float64", point, starts)
        except BadInputError:
            return None

    def _started_pool(self) -> RankPool:
        if self._pool is None:
            timeout_s = _START_S + _MOST_PATIENCE * self._longest_s
            self._pool = RankPool(self._ranks, threads=self._threads, timeout_s=timeout_s)
        return self._pool

    def _measured_here(self, layout: Layout, dtype: DtypeName, point: int, starts: Starts) -> Measurement:
        try:
            with _threads(self._threads):
                part = measure_rank(ALONE, self._subject.at_point(point), layout, dtype, None, starts)
        except Exception as error:
            if dtype == "float32":
                raise
            raise BadInputError(
                f"--model does not run in float64 ({describe_failure(error)}); --dtype float32 skips float64."
            ) from error
        assert part.measurement is not None
        return part.measurement

    @contextmanager
    def _shown(
        self, layout: Layout, dtype: DtypeName, point: int, *, is_planned: bool = True
    ) -> Iterator[None]:
        if self._reporter.progress_due():
            again = f", point {point + 1}" if point else ""
            self._reporter.progress(min(self._done, self._total), f"{layout.name} in {dtype}{again}")
        started_s = time.perf_counter()
        yield
        seconds = time.perf_counter() - started_s
        if layout.ranks == 1:
            self._longest_s = max(self._longest_s, seconds)
        # Nobody planned further points; they must not count.
        is_counted = is_planned and point == 0
        self._done += is_counted
        self._time_left.add(layout, dtype, seconds=seconds, was_planned=is_counted)
        self._reporter.expect(self._time_left.seconds)

    def _announce_length(self) -> None:
        left_s = self._time_left.seconds
        if left_s > _LONG_S:
            self._reporter.say(
                f"verifying will take about {left_s / 60:.0f} minutes; --quick, or a smaller --image-size or "
                "--model-width, makes it faster."
            )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
