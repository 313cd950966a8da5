"""What a person sees while a run goes on: a bar on a terminal, a line every few seconds elsewhere."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

VerbosityName = Literal["quiet", "normal", "verbose"]

_BAR_PERIOD_S = 0.1
_LINE_PERIOD_S = 5.0


class Reporter:
    """Prints what a verbosity asks for, keeps the normal messages in the run's log, and shows progress.

    `quiet` prints nothing at all, for callers whose output is something else.
    """

    def __init__(self, *, verbosity: VerbosityName = "normal", quiet: bool = False) -> None:
        self._console = Console(highlight=False, soft_wrap=True, quiet=quiet)
        self._verbosity = verbosity
        self._log: TextIO | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._next_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_progress()
        self.end_log()

    @property
    def is_silent(self) -> bool:
        """Whether nothing at all is printed."""
        return self._console.quiet

    @property
    def is_verbose(self) -> bool:
        """Whether details are worth working out."""
        return self._verbosity == "verbose"

    def log_to(self, path: Path) -> None:
        """From now on every message is also appended to this file, whatever the verbosity."""
        self.end_log()
        self._log = path.open("a")

    def end_log(self) -> None:
        """Messages no longer go to a file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def say(self, text: str) -> None:
        """A message to the person, unless she asked for quiet."""
        if self._verbosity != "quiet":
            self._print(text)
        self._keep(text)

    def result(self, text: str) -> None:
        """What a command came to: printed even when quiet."""
        self._print(text)
        self._keep(text)

    def warn(self, text: str) -> None:
        """A message that names something the person should know before trusting the result."""
        self.result(f"warning: {text}")

    def detail(self, text: str) -> None:
        """What only a verbose person reads; the run's log does without."""
        if self.is_verbose:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _keep(self, text: str) -> None:
        if self._log is not None:
            self._log.write(text + "\n")
            self._log.flush()

    def start_progress(self, what: str, *, done: int, total: int) -> None:
        """Begins a bar over `total` units, some of them already done."""
        self._total = total
        self._next_s = time.perf_counter() + _LINE_PERIOD_S
        if self._console.is_terminal and self._verbosity != "quiet":
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task(what, total=total, completed=done, detail="")
            self._bar.start()
            self._next_s = 0.0

    def progress_due(self) -> bool:
        """Whether it is time to show progress again; cheap enough to ask at every update."""
        return time.perf_counter() >= self._next_s

    def progress(self, done: int, detail: str) -> None:
        """Shows how far the work has come."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, detail=detail)
            self._next_s = time.perf_counter() + _BAR_PERIOD_S
            return
        self.say(f"{done}/{self._total}  {detail}")
        self._next_s = time.perf_counter() + _LINE_PERIOD_S

    def stop_progress(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None


class WarningsOnly(Reporter):
    """Says nothing but warnings, and those on stderr: stdout is for a program to read."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def warn(self, text: str) -> None:
        sys.stderr.write(f"warning: {text}\n")
