import os
import threading
import time

import psutil
import pytest
import torch

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.rank_failure import RankTracebackError
from drivetrain.ranks.replica_group import ReplicaGroup
from tests.deadlines import HANG_S


class _ErrorWithoutPickleError(Exception):
    """Holds what cannot travel."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def _add(group: ReplicaGroup, number: int) -> torch.Tensor:
    values = torch.full((2,), float(number + group.rank))
    group.sum_(values)
    return values


def _facts(group: ReplicaGroup) -> tuple[int, int, int, bool]:
    return os.getpid(), group.size, torch.get_num_threads(), find_place(os.environ) is None


def _fail(group: ReplicaGroup, how: str) -> None:
    if group.rank != 1:
        group.barrier()
    elif how == "bad input":
        raise BadInputError("--replicas 3 does not fit.")
    elif how == "no pickle":
        raise _ErrorWithoutPickleError("odd")
    elif how == "exit":
        os._exit(0)
    elif how == "hang":
        _sit_there()


def _sit_there() -> None:
    time.sleep(120)


def _unpicklable(_group: ReplicaGroup) -> object:
    return threading.Lock()


def test_results_come_in_the_order_of_the_ranks(rank_pool: RankPool) -> None:
    assert [values.tolist() for values in rank_pool.run(_add, 1)] == [[10.0, 10.0]] * 4
    assert [values.tolist() for values in rank_pool.run(_add, 1, ranks=2)] == [[3.0, 3.0]] * 2
    assert [values.tolist() for values in rank_pool.run(_add, 5, ranks=1)] == [[5.0, 5.0]]


def test_ranks_stay_and_stand_for_themselves(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(_facts), rank_pool.run(_facts)
    assert first == second
    assert len({pid for pid, *_ in first}) == 4
    assert {(size, threads, is_alone) for _, size, threads, is_alone in first} == {(4, 1, True)}


def test_an_error_of_a_rank_is_raised_here_and_the_pool_goes_on(rank_pool: RankPool) -> None:
    before = rank_pool.run(_facts)
    with pytest.raises(BadInputError, match="does not fit") as caught:
        rank_pool.run(_fail, "bad input")
    assert caught.value.__notes__ == ["on rank 1"]
    assert isinstance(caught.value.__cause__, RankTracebackError)
    assert "in _fail" in str(caught.value.__cause__)
    with pytest.raises(RunFailedError, match=r"rank 1 on .* failed: .*_ErrorWithoutPickleError: odd"):
        rank_pool.run(_fail, "no pickle")
    with pytest.raises(TypeError, match="pickle"):
        rank_pool.run(_unpicklable, ranks=2)
    assert rank_pool.run(_facts) == before


def test_lost_ranks_fail_the_work_and_are_replaced() -> None:
    with RankPool(2, timeout_s=HANG_S) as pool:
        pids = [pid for pid, *_ in pool.run(_facts)]
        with pytest.raises(RunFailedError, match=r"rank 1 on .* failed: exit status 0"):
            pool.run(_fail, "exit")
        assert not any(map(psutil.pid_exists, pids))
        assert pool.run(_add, 1)[0].tolist() == [3.0, 3.0]


def test_ranks_that_hang_are_given_up_and_shown() -> None:
    with RankPool(2, timeout_s=5.0) as pool:
        with pytest.raises(RunFailedError, match=r"Ranks \[0, 1\] did not answer within 5 sec") as caught:
            pool.run(_fail, "hang")
        assert "in _sit_there" in str(caught.value.__cause__)


def test_a_closed_pool_leaves_no_process() -> None:
    with RankPool(2) as pool:
        pids = [pid for pid, *_ in pool.run(_facts)]
        assert all(map(psutil.pid_exists, pids))
    assert not any(map(psutil.pid_exists, pids))
    pool.close()
