"""What a person sees while a run goes on: a bar on a terminal, a line every few seconds elsewhere."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_BAR_PERIOD_S = 0.1
_LINE_PERIOD_S = 5.0


class Reporter:
    """Prints messages, keeps them in the run's log, and shows progress."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(highlight=False, soft_wrap=True, quiet=quiet)
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
        if self._log is not None:
            self._log.close()
            self._log = None

    def log_to(self, path: Path) -> None:
        """From now on every message is also appended to this file."""
        self._log = path.open("a")

    def say(self, text: str) -> None:
        """A message to the person."""
        self._console.print(text, markup=False)
        if self._log is not None:
            self._log.write(text + "\n")
            self._log.flush()

    def warn(self, text: str) -> None:
        """A message that names something the person should know before trusting the result."""
        self.say(f"warning: {text}")

    def start_progress(self, what: str, *, done: int, total: int) -> None:
        """Begins a bar over `total` units, some of them already done."""
        self._total = total
        self._next_s = time.perf_counter() + _LINE_PERIOD_S
        if self._console.is_terminal:
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


def print_error(sentence: str) -> None:
    """An error's one sentence, on standard error."""
    sys.stderr.write(sentence + "\n")
