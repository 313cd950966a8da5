"""The number of CPU threads of each process, so that the processes of a machine share its cores."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING

from drivetrain.ranks.host import host_key

if TYPE_CHECKING:
    from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["cores", "share_of_cores", "threads_of_each", "threads_of_rank"]

_THREADS = "OMP_NUM_THREADS"


@contextmanager
def threads_of_each(processes: int, *, asked: int | None) -> Iterator[None]:
    """Sets the threads of processes started inside: as asked, as the environment says, or their share."""
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


def threads_of_rank(group: "ReplicaGroup", *, asked: int | None) -> int | None:
    """The threads of a rank: as asked, or its share of the host's cores; a collective.

    None if torch should keep its default, which follows OMP_NUM_THREADS.
    """
    everywhere = group.gather((host_key(), _own_cores()))
    host, own = everywhere[group.rank]
    share = share_of_cores(own, [cores for place, cores in everywhere if place == host])
    return asked or (share if group.size > 1 and _THREADS not in os.environ else None)


def share_of_cores(own: frozenset[int], everybodys: Sequence[frozenset[int]]) -> int:
    """The share of the cores `own` when each is divided among all processes that may use it."""
    users = Counter(core for cores in everybodys for core in cores)
    return max(1, int(sum(Fraction(1, users[core]) for core in own)))


def cores() -> int:
    """The number of cores this process may use."""
    return len(_own_cores())


def _own_cores() -> frozenset[int]:
    # Launchers may bind ranks to cores; os.cpu_count would count those of other ranks too.
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
