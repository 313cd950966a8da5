"""The progress of a task as one line of text: name, bar, count, remaining time, details."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import shorten

__all__ = ["Work", "clock_time", "line_on_screen", "plain_line"]

_LEAST_BAR, _LARGEST_BAR = 10, 40
_BAR_SHARE = 0.15
_GAP = "  "


@dataclass(slots=True, kw_only=True)
class Work:
    """A named task with its progress; `total` is None if the amount of work is unknown.

    `clock` returns seconds. The remaining time is what `expect` was told. Without that it is estimated from
    the pace since progress was first shown, because what comes before, such as compiling, happens only once.
    """

    name: str
    done: int = 0
    total: int | None = None
    detail: str = ""
    clock: Callable[[], float] = time.perf_counter
    begin_s: float = field(init=False)
    _paced_from: tuple[int, float] | None = None
    _shown_at_s: float = 0.0
    _expected_end_s: float | None = None

    def __post_init__(self) -> None:
        self.begin_s = self.clock()

    def move(self, done: int, detail: str) -> None:
        """Sets how much is done."""
        self.done, self.detail, self._shown_at_s = done, detail, self.clock()
        if self._paced_from is None:
            self._paced_from = (done, self._shown_at_s)

    def expect(self, left_s: float) -> None:
        """Sets the remaining time, for work whose parts take different times."""
        self._expected_end_s = self.clock() + left_s

    @property
    def lasted_s(self) -> float:
        """Seconds since the task began."""
        return self.clock() - self.begin_s

    @property
    def left_s(self) -> float | None:
        """Estimated remaining seconds; None while there is no estimate."""
        if self._expected_end_s is not None:
            return max(0.0, self._expected_end_s - self.clock())
        if self._paced_from is None or self.total is None or self.done <= self._paced_from[0]:
            return None
        before, since_s = self._paced_from
        per_unit_s = (self._shown_at_s - since_s) / (self.done - before)
        return max(0.0, per_unit_s * (self.total - self.done) - (self.clock() - self._shown_at_s))

    @property
    def count(self) -> str:
        """The count, such as 312/1200; empty if the total is unknown."""
        return "" if self.total is None else f"{self.done}/{self.total}"

    @property
    def time(self) -> str:
        """The remaining time or, without an estimate, the time so far."""
        left_s = self.left_s
        return f"{clock_time(self.lasted_s)} so far" if left_s is None else f"{clock_time(left_s)} left"


def clock_time(seconds: float) -> str:
    """Seconds as 4:05 or 1:04:05."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def plain_line(work: Work) -> str:
    """The progress without a bar, for log files and pipes."""
    counted = f"{work.name} {work.count}".rstrip()
    return _GAP.join(part for part in (counted, work.time, work.detail) if part)


def line_on_screen(work: Work, *, width: int, name_width: int = 0, ascii_only: bool = False) -> str:
    """The progress with a bar: name, bar, count and time, then as many whole details as fit the width."""
    bar_width = max(_LEAST_BAR, min(_LARGEST_BAR, int(width * _BAR_SHARE)))
    bar = _bar(work, width=bar_width, ascii_only=ascii_only)
    line = _GAP.join(part for part in (work.name.ljust(name_width), bar, work.count, work.time) if part)
    return line + _fitting(work.detail, room=width - len(line))


def _fitting(detail: str, *, room: int) -> str:
    """As many parts of the details as fit; a single part is shortened at a word if it is too long."""
    first, *more = (_GAP + part for part in detail.split(_GAP)) if detail else ("",)
    fitting = first
    if len(first) > room:
        return _GAP + shorten(first, room - len(_GAP), placeholder=" ...") if not more else ""
    for part in more:
        if len(fitting) + len(part) > room:
            break
        fitting += part
    return fitting


def _bar(work: Work, *, width: int, ascii_only: bool) -> str:
    full, empty = ("#", "-") if ascii_only else ("━", "─")
    if not work.total:
        place = int(work.lasted_s) % width
        return empty * place + full + empty * (width - place - 1)
    filled = min(width, width * work.done // work.total)
    return full * filled + empty * (width - filled)
