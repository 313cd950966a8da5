"""Observers of an update, which are told when its actions and its parts begin and end."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from types import TracebackType
from typing import Any, Protocol

from drivetrain.schedules.actions import Action

__all__ = ["Observer", "Part", "all_of", "observed", "observed_part"]

_NOTHING = nullcontext()


class Part(Enum):
    """The parts of an update, in this order."""

    PASSES = "passes"
    GRADIENT_SUM = "gradient sum"
    OPTIMISER = "optimiser update"


class Observer(Protocol):
    """Is told what a rank does.

    `start_s` is time.perf_counter() at the start; the end is the time of the call itself.
    """

    @property
    def sees_ends(self) -> bool:
        """Whether `ended` should be called now; if not, the caller saves the cost of taking times."""
        ...

    def begins(self, device: int, action: Action) -> None:
        """A device begins its next action."""
        ...

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        """A step of an action ended: "data", "wait", "forward", "backward", "input", "weight" or "send"."""
        ...

    def part_begins(self, update: int, part: Part) -> None:
        """The rank begins the next part of an update."""
        ...

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:
        """A part of an update ended."""
        ...


def observed(
    observer: Observer | None, device: int, what: str, action: Action
) -> AbstractContextManager[object]:
    """A context that reports the start and end of its block to the observer, if the observer wants them."""
    if observer is None or not observer.sees_ends:
        return _NOTHING
    return _Observed(observer, device, what, action)


class _Observed:
    """A class, because a generator as context manager is slower and an action may take only microseconds."""

    __slots__ = ("_about", "_observer", "_start_s")

    def __init__(self, observer: Observer, *about: Any) -> None:
        self._observer, self._about = observer, about

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._observer.ended(*self._about, start_s=self._start_s)


@contextmanager
def observed_part(observer: Observer | None, update: int, part: Part) -> Iterator[None]:
    """Tells the observer when a part of an update begins and ends."""
    if observer is None:
        yield
        return
    observer.part_begins(update, part)
    start_s = time.perf_counter()
    yield
    observer.part_ended(update, part, start_s=start_s)


def all_of(observers: Sequence[Observer]) -> Observer | None:
    """One observer that informs all of these; None if there are none."""
    if len(observers) > 1:
        return _Observers(observers)
    return observers[0] if observers else None


class _Observers:
    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @property
    def sees_ends(self) -> bool:
        return any(observer.sees_ends for observer in self._observers)

    def begins(self, device: int, action: Action) -> None:
        for observer in self._observers:
            observer.begins(device, action)

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        for observer in self._observers:
            if observer.sees_ends:
                observer.ended(device, what, action, start_s=start_s)

    def part_begins(self, update: int, part: Part) -> None:
        for observer in self._observers:
            observer.part_begins(update, part)

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:
        for observer in self._observers:
            observer.part_ended(update, part, start_s=start_s)
