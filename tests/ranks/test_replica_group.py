import torch
import torch.distributed as dist

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup


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
