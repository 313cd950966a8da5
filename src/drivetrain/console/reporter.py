"""Messages and progress of a run: bars on a terminal, a line every few seconds elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from drivetrain.console.progress_line import Work, clock_time, line_on_screen, plain_line

__all__ = ["Heartbeat", "Reporter", "VerbosityName", "WarningsOnly"]

VerbosityName = Literal["quiet", "normal", "verbose"]
# A bar looks smooth at ten refreshes per second; lines in a log file must not flood it.
_BAR_PERIOD_S = 0.1
_LINE_PERIOD_S = 5.0
# Work that reports no progress gets a line every _SILENCE_S; a thread looks every _LOOK_S if one is due.
_SILENCE_S, _LOOK_S = 30.0, 0.5


class Heartbeat:
    """Calls `beat` every `period_s` in a thread; `stop` waits for a call in progress."""

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


class Reporter:
    """Prints messages according to the verbosity, writes them to the run's log, and shows progress.

    `quiet` prints nothing at all. `to_stderr` prints to stderr, for commands whose stdout is the result.
    """

    def __init__(
        self, *, verbosity: VerbosityName = "normal", quiet: bool = False, to_stderr: bool = False
    ) -> None:
        self._console = Console(highlight=False, soft_wrap=True, quiet=quiet, stderr=to_stderr)
        self._verbosity = verbosity
        self._logs: list[TextIO] = []
        self._works: list[_Shown] = []
        self._bars: Live | None = None
        self._heartbeat: Heartbeat | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._works.clear()
        self._end_showing()
        self.end_log()

    @property
    def is_silent(self) -> bool:
        """Whether nothing at all is printed."""
        return self._console.quiet

    @property
    def is_verbose(self) -> bool:
        """Whether details are printed, and so worth computing."""
        return self._verbosity == "verbose"

    def log_to(self, *paths: Path) -> None:
        """Appends every message from now on to these files as well, whatever the verbosity."""
        with self._lock:
            self.end_log()
            for path in paths:
                self._logs.append(path.open("a"))

    def end_log(self) -> None:
        """Stops writing messages to files."""
        with self._lock:
            while self._logs:
                self._logs.pop().close()

    def say(self, text: str) -> None:
        """Prints a message unless the verbosity is quiet; the log always gets it."""
        self._say(text)

    def result(self, text: str) -> None:
        """Prints a result, even if the verbosity is quiet."""
        self._print(text)
        self._keep(text)

    def warn(self, text: str) -> None:
        """Prints a warning, even if the verbosity is quiet."""
        self.result(f"warning: {text}")

    def detail(self, text: str) -> None:
        """Prints a message only if the verbosity is verbose; it is not written to the log."""
        if self.is_verbose:
            self._print(text)

    def _say(self, text: str) -> None:
        if self._verbosity != "quiet":
            self._print(text)
        self._keep(text)

    def _print(self, text: str) -> None:
        with self._lock:
            # On a terminal rich wraps between words; in a file or pipe each message stays on one line.
            self._console.print(text, markup=False, soft_wrap=not self._console.is_terminal)

    def _keep(self, text: str) -> None:
        with self._lock:
            for log in self._logs:
                log.write(text + "\n")
                log.flush()

    @contextmanager
    def showing(
        self, what: str, *, total: int | None = None, is_done: Callable[[], bool] = lambda: True
    ) -> Iterator[None]:
        """Shows progress of `what` until the block ends; nested work has a line of its own.

        `is_done` is called at the end; it returns False if work that may stop early was not finished.
        """
        self.start_progress(what, total=total)
        try:
            yield
        except BaseException:
            self.stop_progress(is_done=False)
            raise
        self.stop_progress(is_done=is_done())

    def start_progress(self, what: str, *, done: int = 0, total: int | None = None) -> None:
        """Starts to show work of `total` units, `done` of them finished; without a total only its time.

        Work that is already shown stays visible; the new work is nested in it.
        """
        with self._lock:
            self._works.append(_Shown(Work(name=what, done=done, total=total)))
        if self._uses_bars:
            self._works[-1].next_s = 0.0
            self._show_bars()
        elif self._heartbeat is None and self._has_readers:
            self._heartbeat = Heartbeat(self._show_silent_work, period_s=_LOOK_S)

    def progress_due(self) -> bool:
        """Whether it is time to show progress again; cheap enough to call at every update."""
        return bool(self._works) and time.perf_counter() >= self._works[-1].next_s

    def progress(self, done: int, detail: str = "") -> None:
        """Shows the progress of the innermost work."""
        with self._lock:
            shown = self._works[-1]
            shown.work.move(done, detail)
            if self._bars is not None:
                self._bars.refresh()
                shown.next_s = time.perf_counter() + _BAR_PERIOD_S
            else:
                self._say_how_far(shown)

    def expect(self, left_s: float) -> None:
        """Sets the remaining time of the innermost work; it is shown with its next line."""
        with self._lock:
            if self._works:
                self._works[-1].work.expect(left_s)

    def progress_if_due(self, done: int) -> None:
        """Shows the progress of the innermost work if it is due."""
        if self.progress_due():
            self.progress(done)

    def stop_progress(self, *, is_done: bool = True) -> None:
        """Ends the innermost work: removes its bar, or prints a line if lines had shown its progress.

        Work that failed or was stopped (`is_done` is False) prints nothing; its error does.
        """
        if not self._works:
            return
        with self._lock:
            ended = self._works.pop()
            if self._works:
                self._works[-1].silent_until_s = time.perf_counter() + _SILENCE_S
        if not self._works:
            self._end_showing()
        if ended.lines and is_done:
            self._say(f"{ended.work.name}: done after {clock_time(ended.work.lasted_s)}")

    @property
    def _uses_bars(self) -> bool:
        return self._console.is_terminal and self._prints

    @property
    def _prints(self) -> bool:
        return not self.is_silent and self._verbosity != "quiet"

    @property
    def _has_readers(self) -> bool:
        return self._prints or bool(self._logs)

    def _show_bars(self) -> None:
        if self._bars is None:
            self._bars = Live(get_renderable=self._bar_lines, console=self._console, transient=True)
            self._bars.start()

    def _end_showing(self) -> None:
        """Stops bars and heartbeat. Call it without the lock, which the joined thread may need."""
        if self._bars is not None:
            self._bars.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._bars = self._heartbeat = None

    def _bar_lines(self) -> Text:
        works = [shown.work for shown in self._works]
        widest = max((len(work.name) for work in works), default=0)
        ascii_only = not self._console.encoding.startswith("utf")
        lines = [
            line_on_screen(work, width=self._console.width, name_width=widest, ascii_only=ascii_only)
            for work in works
        ]
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def _show_silent_work(self) -> None:
        """Prints a line for work that has not reported progress for a while."""
        with self._lock:
            is_due = bool(self._works) and time.perf_counter() >= self._works[-1].silent_until_s
            if is_due and self._may_break_silence:
                self._say_how_far(self._works[-1])

    @property
    def _may_break_silence(self) -> bool:
        return True

    def _say_how_far(self, shown: "_Shown") -> None:
        self._say(plain_line(shown.work))
        shown.lines += 1
        shown.next_s = time.perf_counter() + _LINE_PERIOD_S
        shown.silent_until_s = time.perf_counter() + _SILENCE_S


@dataclass(slots=True)
class _Shown:
    """Work that is shown, with the times of its next line: after progress, and without any progress."""

    work: Work
    lines: int = 0
    next_s: float = field(default_factory=lambda: time.perf_counter() + _LINE_PERIOD_S)
    silent_until_s: float = field(default_factory=lambda: time.perf_counter() + _LINE_PERIOD_S)


class WarningsOnly(Reporter):
    """Prints only warnings, to stderr, for commands whose stdout is read by a program."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def warn(self, text: str) -> None:
        sys.stderr.write(f"warning: {text}\n")
