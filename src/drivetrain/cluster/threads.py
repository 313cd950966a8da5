"""How the processes of one machine share its cores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["cores", "threads_of_each"]

_THREADS = "OMP_NUM_THREADS"


@contextmanager
def threads_of_each(processes: int, *, asked: int | None) -> Iterator[None]:
    """Processes begun inside use this many threads: as asked, as the environment says, or their share."""
    former = os.environ.get(_THREADS)
    if asked is not None or former is None:
        os.environ[_THREADS] = str(asked or max(1, cores() // processes))
    try:
        yield
    finally:
        if former is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = former


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
