"""Arrays of sources lie once per host in memory, whatever the number of ranks; measured in bytes."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from drivetrain.data.feeds.feed import ResidentFeed
from drivetrain.data.feeds.held_once import hold_once
from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import ArraySource, DataSpec, DataSplits, SubsetSource
from drivetrain.data.training_tiles import UniformSource
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from tests.data.helpers import CPU, make_order

MIB = 2**20
SAMPLES, SIDE = 16384, 64
SPEC = DataSpec(
    channels=1, height=SIDE, width=SIDE, num_classes=10, class_names=tuple("0123456789"), image_dtype="uint8"
)


def _large_splits() -> DataSplits:
    """64 MiB of images, of which some are for validation."""
    # Fresh pages: what a long-lived rank allocates may be memory that it has kept from before.
    images = np.frombuffer(mmap.mmap(-1, SAMPLES * SIDE * SIDE), dtype=np.uint8).reshape(-1, SIDE, SIDE, 1)
    images[:] = 7
    images[:, 0, 0, 0] = np.arange(SAMPLES) % 251
    source = ArraySource(images=images, labels=np.arange(SAMPLES, dtype=np.int64) % 10)
    train, validation = np.arange(SAMPLES - 100), np.arange(SAMPLES - 100, SAMPLES)
    return DataSplits(
        train=SubsetSource(source, train), validation=SubsetSource(source, validation), test=None, spec=SPEC
    )


def _memory_bytes(kind: str) -> int:
    """Of this process: Pss counts memory that n processes share as 1/n."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))


def _grown_bytes(group: ReplicaGroup, shares: bool) -> tuple[int, int]:
    """Memory that a rank has more of once it feeds from 64 MiB, and a digest of what it sees."""
    before = _memory_bytes("Pss")
    splits = _large_splits()
    if shares:
        hold_once(splits, group=group)
    feed = ResidentFeed(
        splits.train,
        order=make_order(samples=len(splits.train)),
        preprocess=Preprocess(SPEC),
        micro_batch_size=2,
        device=CPU,
        replica=group.rank,
        replicas=group.size,
        group=group,
    )
    seen = sum(float(batch.images.sum()) for batch in feed.micro_batches(0))
    assert splits.validation is not None
    # Whoever looks at a page counts as one of those who share it.
    total = int(sum(splits.train.fetch(np.arange(first, first + 1))[0].sum() for first in range(8192)))
    group.barrier()
    grown = _memory_bytes("Pss") - before
    group.barrier()
    return grown, total + int(seen > 0)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_of_a_host_hold_one_copy(rank_pool: RankPool, ranks: int) -> None:
    found = rank_pool.run(_grown_bytes, True, ranks=ranks)
    assert sum(grown for grown, _ in found) < 64 * MIB * 1.3
    assert len({digest for _, digest in found}) == 1


def test_negative_control_without_it_every_rank_holds_its_own(rank_pool: RankPool) -> None:
    found = rank_pool.run(_grown_bytes, False, ranks=2)
    assert sum(grown for grown, _ in found) > 2 * 64 * MIB * 0.9


def _share_different_layers(group: ReplicaGroup) -> tuple[bool, bool, bool]:
    masked = HeldMaskedImages(
        images=np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4, 1),
        masks=np.ones((2, 4, 4, 1), dtype=np.uint8),
        names=("a", "b"),
    )
    source = UniformSource(masked)
    expected = source.fetch(np.array([1, 0]))
    hold_once(DataSplits(train=source, validation=None, test=source, spec=SPEC), group=group)
    found = source.fetch(np.array([1, 0]))
    is_shared = not masked.images.flags.owndata and masked.images.base is not None
    group.barrier()
    if group.is_first:
        masked.images[0, 0, 0, 0] = 99
    group.barrier()
    sees_first = bool(masked.images[0, 0, 0, 0] == 99)
    return all(map(np.array_equal, expected, found)), is_shared, sees_first


def test_masked_images_are_shared_too(rank_pool: RankPool) -> None:
    assert rank_pool.run(_share_different_layers, ranks=2) == [(True, True, True)] * 2


def test_alone_nothing_moves() -> None:
    splits = _large_splits()
    assert isinstance(splits.train, SubsetSource)
    assert isinstance(splits.train.source, ArraySource)
    before = splits.train.source.images
    hold_once(splits, group=ALONE)
    assert splits.train.source.images is before
