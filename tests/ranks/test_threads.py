"""How ranks share the cores of their hosts."""

import os

import pytest

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.ranks.threads import cores, share_of_cores, threads_of_rank


def _set(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (range(8), [range(8)] * 3, 2),
        (range(8), [], 8),
        (range(6), [range(6)] * 3, 1),
        (range(2), [range(2)] * 7, 1),
        (range(4), [range(4, 8)], 4),
        (range(4), [range(4), range(4, 8), range(4, 8)], 2),
        (range(9), [range(9)] * 2, 3),
    ],
)
def test_each_core_is_shared_by_those_that_may_use_it(own: range, others: list[range], expected: int) -> None:
    everybodys = [_set(*own), *(_set(*other) for other in others)]
    assert share_of_cores(everybodys[0], everybodys) == expected


def _threads(group: ReplicaGroup, variable: str | None, asked: int | None) -> int | None:
    former = os.environ.pop("OMP_NUM_THREADS", None)
    try:
        if variable is not None:
            os.environ["OMP_NUM_THREADS"] = variable
        return threads_of_rank(group, asked=asked)
    finally:
        os.environ.pop("OMP_NUM_THREADS", None)
        if former is not None:
            os.environ["OMP_NUM_THREADS"] = former


def test_ranks_without_a_word_about_threads_take_their_share(rank_pool: RankPool) -> None:
    assert rank_pool.run(_threads, None, None) == [max(1, cores() // 4)] * 4
    assert rank_pool.run(_threads, "3", None) == [None] * 4
    assert rank_pool.run(_threads, "3", 5) == [5] * 4
    assert rank_pool.run(_threads, None, 5, ranks=2) == [5] * 2


def test_who_is_alone_is_left_alone() -> None:
    assert _threads(ALONE, None, None) is None
    assert _threads(ALONE, None, 2) == 2
