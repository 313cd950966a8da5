"""Ranks of one host see the same memory; nothing stays behind."""

from pathlib import Path

import torch
from torch import Tensor

from drivetrain.cluster.pool import RankPool
from drivetrain.cluster.replica_group import ALONE, ReplicaGroup
from drivetrain.cluster.shared_memory import shared_tensors

LAYOUTS = [((4, 3), torch.uint8), ((4,), torch.int64)]


def _fill(tensors: list[Tensor]) -> None:
    pixels, labels = tensors
    pixels.copy_(torch.arange(12, dtype=torch.uint8).view(4, 3))
    labels.copy_(torch.arange(4))


def _shared(group: ReplicaGroup) -> tuple[list[int], list[int], int, int]:
    """What a rank sees, what it sees after the first one has written, and its mapped files."""
    fills: list[int] = []

    def fill(tensors: list[Tensor]) -> None:
        fills.append(1)
        _fill(tensors)

    pixels, labels = shared_tensors(LAYOUTS, group=group, fill=fill)
    before = pixels.flatten().tolist()
    group.barrier()
    if group.is_first:
        labels[0] = 77
    group.barrier()
    mapped = sum("drivetrain-" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return before, labels.tolist(), len(fills), mapped


def test_one_rank_fills_and_all_see_the_same_memory(rank_pool: RankPool) -> None:
    left_before = set(Path("/dev/shm").glob("drivetrain-*"))
    found = rank_pool.run(_shared, ranks=4)
    assert [fills for _, _, fills, _ in found] == [1, 0, 0, 0]
    for before, labels, _, mapped in found:
        assert before == list(range(12))
        assert labels == [77, 1, 2, 3]
        assert mapped >= 2
    assert set(Path("/dev/shm").glob("drivetrain-*")) == left_before


def test_alone_it_is_ordinary_memory() -> None:
    pixels, labels = shared_tensors(LAYOUTS, group=ALONE, fill=_fill)
    assert pixels.flatten().tolist() == list(range(12))
    assert labels.tolist() == [0, 1, 2, 3]
