"""Progress of reading files: the data layer counts, and a caller may show the count.

The data layer itself prints nothing, so calls from Python and all ranks except the first stay quiet.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

__all__ = ["ProgressWatcher", "counted", "showing_progress", "shown"]

Item = TypeVar("Item")


class ProgressWatcher(Protocol):
    """The part of a reporter that shows progress."""

    def showing(self, what: str, *, total: int | None = None) -> AbstractContextManager[None]: ...

    def progress_if_due(self, done: int) -> None: ...


_watcher: ContextVar[ProgressWatcher | None] = ContextVar("watcher", default=None)


@contextmanager
def showing_progress(watcher: ProgressWatcher | None) -> Iterator[None]:
    """Inside the block, `watcher` shows the progress of reading."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def counted(items: Iterable[Item], *, total: int, what: str) -> Generator[Item]:
    """Yields the items and reports their count to the watcher under the name `what`."""
    watcher = _watcher.get()
    if watcher is None or total == 0:
        yield from items
        return
    with watcher.showing(what, total=total):
        for count, item in enumerate(items, start=1):
            yield item
            watcher.progress_if_due(count)


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Tells the watcher that the block does `what`, of which nobody knows how far it is."""
    watcher = _watcher.get()
    if watcher is None:
        yield
        return
    with watcher.showing(what):
        yield
