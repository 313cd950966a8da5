"""How far reading has come: whoever reads many files tells, and whoever called may show it.

The data layer prints nothing by itself, so a call from Python, and every rank but the first, stay quiet.
"""

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

__all__ = ["ProgressWatcher", "counted", "showing_progress"]

Item = TypeVar("Item")

# Shorter work needs no line to say that it is over.
_WORTH_A_LINE_S = 1.0


class ProgressWatcher(Protocol):
    """The part of a reporter that shows progress."""

    def start_progress(self, what: str, *, done: int, total: int) -> None: ...

    def progress_due(self) -> bool: ...

    def progress(self, done: int, detail: str) -> None: ...

    def stop_progress(self) -> None: ...

    def say(self, text: str) -> None: ...


_watcher: ContextVar[ProgressWatcher | None] = ContextVar("watcher", default=None)


@contextmanager
def showing_progress(watcher: ProgressWatcher | None) -> Iterator[None]:
    """Inside, `watcher` shows how far reading has come; it must have no other progress to show meanwhile."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def counted(items: Iterable[Item], *, total: int, doing: str, done: str) -> Generator[Item]:
    """The same items, counted for the watcher: `doing` names the bar, `done` what `total` items are.

    `doing="scanning", done="images scanned"` gives lines like "120/600  images scanned", and in the end
    "600 images scanned in 9.5 s".
    """
    watcher = _watcher.get()
    if watcher is None or total == 0:
        yield from items
        return
    started_s = time.perf_counter()
    watcher.start_progress(doing, done=0, total=total)
    try:
        for count, item in enumerate(items, start=1):
            yield item
            if watcher.progress_due():
                watcher.progress(count, done)
    finally:
        watcher.stop_progress()
    seconds = time.perf_counter() - started_s
    if seconds >= _WORTH_A_LINE_S:
        watcher.say(f"{total} {done} in {seconds:.1f} s")
