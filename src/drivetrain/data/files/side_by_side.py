"""A thread-pool map with a bounded number of items in flight."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["mapped"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Enough to keep all threads busy while the consumer handles one result, at a bounded memory.
_MOST_AHEAD = 256


def mapped(
    threads: ThreadPoolExecutor,
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    most_ahead: int | None = None,
) -> Generator[Result]:
    """Results in the order of the items; closing the generator cancels the remaining work.

    `ThreadPoolExecutor.map` makes a future of every item at once, about 2 kB each (Python 3.11).
    """
    most = _MOST_AHEAD if most_ahead is None else most_ahead
    begun: deque[Future[Result]] = deque()
    try:
        for item in items:
            begun.append(threads.submit(work, item))
            if len(begun) >= most:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
