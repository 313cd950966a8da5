"""Writes down the progress that work tells."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drivetrain.core.progress import showing_progress


class Watcher:
    """Writes down what it is told, at every step."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def showing(self, what: str, *, total: int | None = None) -> Iterator[None]:
        self.told.append(f"{what} of {total}")
        try:
            yield
        finally:
            self.told.append("end")

    def progress_if_due(self, done: int) -> None:
        self.told.append(str(done))


def watched(work: Callable[[], object]) -> list[str]:
    watcher = Watcher()
    with showing_progress(watcher):
        work()
    return watcher.told
