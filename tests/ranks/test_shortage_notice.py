"""A rank that ran out of memory leaves with messages in flight; no other waits for it, and all meet again."""

import queue
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from drivetrain.ranks import shortage_notice
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.rank_failure import is_consequence
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.ranks.shortage_notice import ShortageNotice
from tests.deadlines import HANG_S


def _leave_and_meet(group: ReplicaGroup, *, gives_notice: bool) -> dict[str, Any]:
    notice = ShortageNotice(group)
    pairs, halves = group.parts_of(2), group.every(2)
    error: RuntimeError | None = None
    try:
        if group.rank == 3:
            if gives_notice:
                notice.give()
            # In flight on this rank too: nobody else ever takes part in it.
            waiting = halves.begin_sum(torch.ones(1000))
            del waiting
        elif group.rank == 2:
            pairs.receive_(torch.zeros(3), sender=1)
        else:
            group.sum_(torch.ones(1_000_000))
    except RuntimeError as problem:
        error = problem
    seen = notice.is_given
    again = notice.meet_again(device="cpu")
    values = torch.full((1000,), float(again.rank))
    again.every(2).sum_(values)
    again.barrier()
    return {
        "lost": error is not None and is_consequence(error),
        "seen": seen,
        "sum": values[0].item(),
        "given again": ShortageNotice(again).is_given,
    }


def test_all_ranks_leave_and_meet_again(rank_pool: RankPool) -> None:
    answers = rank_pool.run(_noticed)
    assert [answer["lost"] for answer in answers] == [True, True, True, False]
    assert all(answer["seen"] and not answer["given again"] for answer in answers)
    assert [answer["sum"] for answer in answers] == [2.0, 4.0, 2.0, 4.0]


def test_ranks_that_are_left_without_a_notice_see_none(rank_pool: RankPool) -> None:
    assert not any(answer["seen"] for answer in rank_pool.run(_unnoticed))


def _noticed(group: ReplicaGroup) -> dict[str, Any]:
    return _leave_and_meet(group, gives_notice=True)


def _unnoticed(group: ReplicaGroup) -> dict[str, Any]:
    return _leave_and_meet(group, gives_notice=False)


def test_alone_there_is_nobody_to_tell() -> None:
    notice = ShortageNotice(ReplicaGroup())
    notice.give()
    assert not notice.is_given
    assert notice.meet_again(device="cpu") == ReplicaGroup()


def _heed(group: ReplicaGroup) -> str | None:
    notice, told = ShortageNotice(group), queue.Queue[str]()
    with (
        mock.patch.object(shortage_notice, "_abort", told.put),
        mock.patch.object(shortage_notice, "_LOOK_S", 0.01),
        notice.heeded(device="cuda"),
    ):
        if group.rank == 0:
            notice.give()
        return told.get(timeout=HANG_S)


def test_on_an_accelerator_a_rank_breaks_off_what_waits_on_the_device(rank_pool: RankPool) -> None:
    assert rank_pool.run(_heed, ranks=2) == ["cuda", "cuda"]


def test_the_looking_thread_has_a_connection_of_its_own() -> None:
    store = PrefixStore("group", TCPStore("localhost", 0, is_master=True, wait_for_workers=False))
    own = shortage_notice._own_connection(store)
    assert own is not store
    notice = ShortageNotice(ReplicaGroup(), store)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(store.wait, ["released"], timedelta(seconds=HANG_S))
        assert not shortage_notice._holds_notice(own)
        own.set("released", "")
        waiting.result()
    notice.give()
    assert shortage_notice._holds_notice(own)
