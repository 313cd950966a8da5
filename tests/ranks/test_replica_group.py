"""What replicas do together, and how long they wait for each other."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup, WaitClock

CPU = torch.device("cpu")


def test_alone_everything_is_free() -> None:
    values = torch.tensor([1.0, 2.0])
    ALONE.sum_(values)
    ALONE.begin_sum(values)()
    ALONE.broadcast_(values)
    ALONE.barrier()
    ALONE.set_timeout(1.0)
    assert values.tolist() == [1.0, 2.0]
    assert ALONE.is_first
    assert (ALONE.gather("a"), ALONE.from_first("a"), ALONE.parts_of(1)) == (["a"], "a", ALONE)
    assert not dist.is_initialized()


def _exchange(group: ReplicaGroup) -> dict[str, object]:
    summed = torch.arange(4, dtype=torch.float64) + group.rank
    group.sum_(summed)
    first, second = torch.full((2,), float(group.rank)), torch.full((2,), 10.0 * group.rank)
    waits = [group.begin_sum(first), group.begin_sum(second)]
    for wait in waits:
        wait()
    broadcast = torch.full((2,), float(group.rank + 7))
    group.broadcast_(broadcast)
    group.barrier()
    return {
        "summed": summed.tolist(),
        "begun": (first.tolist(), second.tolist()),
        "broadcast": broadcast.tolist(),
        "gathered": group.gather(("rank", group.rank)),
        "from_first": group.from_first(f"of {group.rank}"),
        "is_first": group.is_first,
    }


def test_collectives_of_all(rank_pool: RankPool) -> None:
    for ranks in (2, 4):
        total = sum(range(ranks))
        for rank, answer in enumerate(rank_pool.run(_exchange, ranks=ranks)):
            assert answer == {
                "summed": [ranks * value + total for value in range(4)],
                "begun": ([total] * 2, [10.0 * total] * 2),
                "broadcast": [7.0, 7.0],
                "gathered": [("rank", other) for other in range(ranks)],
                "from_first": "of 0",
                "is_first": rank == 0,
            }


def _sum_in_parts(group: ReplicaGroup, size: int) -> tuple[int, ...]:
    part = group.parts_of(size)
    values = torch.tensor([10**group.rank])
    part.sum_(values)
    first = torch.tensor([group.rank])
    part.broadcast_(first)
    return part.rank, part.size, part.local_rank, part.local_size, int(values), int(first)


def test_parts_are_consecutive_members(rank_pool: RankPool) -> None:
    assert rank_pool.run(_sum_in_parts, 2) == [
        (0, 2, 0, 2, 11, 0),
        (1, 2, 1, 2, 11, 0),
        (0, 2, 0, 2, 1100, 2),
        (1, 2, 1, 2, 1100, 2),
    ]
    assert rank_pool.run(_sum_in_parts, 4)[3] == (3, 4, 3, 4, 1111, 0)
    assert rank_pool.run(_sum_in_parts, 1)[2] == (0, 1, 0, 1, 100, 2)


def _several_parts(group: ReplicaGroup) -> list[int]:
    """Two groups of the same ranks, used in turn, keep apart."""
    parts = [group.parts_of(2) for _ in range(3)]
    values = [torch.tensor([number]) for number in range(3)]
    waits = [part.begin_sum(value) for part, value in zip(parts, values, strict=True)]
    for wait in reversed(waits):
        wait()
    return [int(value) for value in values]


def test_parts_can_be_cut_many_times(rank_pool: RankPool) -> None:
    assert rank_pool.run(_several_parts) == [[0, 2, 4]] * 4


class _Marks:
    """Marks in the stream of a pretended device, whose time goes on with the waits alone."""

    now_s = 0.0
    made = 0

    def __init__(self, _device: torch.device, *, enable_timing: bool) -> None:
        assert enable_timing
        _Marks.made += 1
        self.at_s = -1.0

    def record(self) -> None:
        self.at_s = _Marks.now_s

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "_Marks") -> float:
        return 1000.0 * (other.at_s - self.at_s)


def _wait_on_device() -> None:
    _Marks.now_s += 0.25


def test_a_processs_own_waits_are_timed() -> None:
    clock = WaitClock()
    wait = clock.timed(lambda: time.sleep(0.05), device=CPU)
    assert clock.read() == 0.0
    wait()
    first = clock.read()
    assert first is not None
    assert first >= 0.05
    wait()
    assert (clock.read() or 0.0) >= first + 0.05


def test_waits_of_a_stream_are_read_from_marks_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "Event", _Marks)
    clock = WaitClock()
    for _ in range(1000):
        clock.timed(_wait_on_device, device=torch.device("cuda"))()
    assert len(clock._pending) <= 256
    assert clock.read() == pytest.approx(250.0)


def test_a_device_that_cannot_tell_gives_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("no timing here")

    waited: list[int] = []
    wait: Callable[[], object] = lambda: waited.append(1)  # noqa: E731
    monkeypatch.setattr(torch, "Event", refuse)
    clock = WaitClock()
    clock.timed(wait, device=torch.device("mps"))()
    assert waited == [1]
    assert clock.read() is None
