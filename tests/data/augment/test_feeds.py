"""Augmented feeds: no cut, placement, worker or order of asking changes an image."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import Augmentation
from drivetrain.data.augment.flip import Flip
from drivetrain.data.augment.mixup import Mixup
from drivetrain.data.augment.rand_augment import RandAugment
from drivetrain.data.augment.random_crop import PaddedCrop, ResizedCrop
from drivetrain.data.feeds import resident
from drivetrain.data.feeds.evaluation_feed import EvaluationFeed
from drivetrain.data.feeds.feed import make_feed
from drivetrain.data.feeds.micro_batch import Feed, MicroBatch
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.data.order import SampleOrder, without_padding
from drivetrain.data.preprocess import Preprocess, channels_last_view
from drivetrain.data.source import Source, SubsetSource
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.schema import Placement, Remainder
from tests.data.helpers import CPU, collect, make_order, same_batches, small_source, spec_of_small

FULL = Augmentation(
    seed=11,
    on_pixels=(
        ResizedCrop(smallest_share=0.4, height=6, width=5, size=(7, 7)),
        Flip("horizontal"),
        RandAugment(operations=1, magnitude=8),
    ),
    on_normalised=(PaddedCrop(padding=2),),
    mixup=Mixup(alpha=1.0),
)
SPEC = replace(spec_of_small(small_source()), normalisation="standardise")


class PassSource:
    """Its training images show the pass they are of: every pixel is its number."""

    augments_at_decode = True

    def __len__(self) -> int:
        return 50

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return small_source().fetch(indices)

    def fetch_augmented(
        self, indices: NDArray[np.int64], passes: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images, labels = small_source().fetch(indices)
        images[:] = passes[:, None, None, None]
        return images, labels


class PretendedGroup(ReplicaGroup):
    """One of several replicas whose others are not there: they seem to say something else, elsewhere."""

    def gather(self, item: Any) -> list[Any]:
        return [item if rank == self.rank else (rank, item) for rank in range(self.size)]


def feed_of(
    order: SampleOrder,
    *,
    placement: Placement,
    micro: int = 4,
    num_workers: int | None = None,
    on_device: bool | None = None,
    eight_bit_transfer: bool = False,
    augmentation: Augmentation | None = FULL,
    source: Source | None = None,
    replica: int = 0,
    replicas: int = 1,
) -> Feed:
    feed, _ = make_feed(
        source or small_source(),
        order=order,
        preprocess=Preprocess(SPEC, 7),
        micro_batch_size=micro,
        device=CPU,
        memory_budget_bytes=2**30,
        data_placement=placement,
        num_workers=num_workers,
        accelerator_side_preprocess=on_device,
        eight_bit_transfer=eight_bit_transfer,
        augmentation=augmentation,
        group=PretendedGroup(rank=replica, size=replicas),
    )
    return feed


def joined(batches: list[MicroBatch], part: str) -> torch.Tensor:
    return torch.cat([getattr(batch, part) for batch in batches])


@pytest.mark.parametrize("remainder", ["trim", "pad", "carry"])
def test_streaming_and_residence_are_one(remainder: Remainder) -> None:
    order = make_order(remainder=remainder)
    expected = collect(feed_of(order, placement="resident"), range(15))
    for on_device, eight_bit in ((None, False), (True, False), (True, True)):
        feed = feed_of(
            order, placement="stream", num_workers=0, on_device=on_device, eight_bit_transfer=eight_bit
        )
        assert same_batches(collect(feed, range(15)), expected)
    other_seed = feed_of(order, placement="resident", augmentation=replace(FULL, seed=12))
    assert not same_batches(collect(other_seed, range(15)), expected)


def test_loader_workers_change_nothing_and_training_can_continue_anywhere() -> None:
    order = make_order(remainder="carry")
    expected = collect(feed_of(order, placement="resident"), range(20))
    workers = feed_of(order, placement="stream", num_workers=2)
    assert same_batches(collect(workers, range(5, 9)), expected[10:18])
    workers.close()
    for update in (19, 3, 7):
        fresh = feed_of(order, placement="resident")
        assert same_batches(collect(fresh, range(update, update + 1)), expected[2 * update : 2 * update + 2])


@pytest.mark.parametrize("placement", ["resident", "stream"])
def test_the_cut_changes_nothing(placement: Placement) -> None:
    order = make_order()
    whole = collect(feed_of(order, placement=placement, micro=8, num_workers=0), range(9))
    cut = collect(feed_of(order, placement=placement, micro=2, num_workers=0), range(9))
    parts = ("images", "labels", "partner_labels", "mix")
    for part in parts:
        assert torch.equal(joined(cut, part), joined(whole, part))
    for update in range(3):
        replicas = [
            collect(
                feed_of(order, placement=placement, micro=4, num_workers=0, replica=replica, replicas=2),
                range(update, update + 1),
            )
            for replica in range(2)
        ]
        for part in parts:
            assert torch.equal(joined(replicas[0] + replicas[1], part), getattr(whole[update], part))


def test_the_size_of_the_moved_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    order = make_order(remainder="carry")
    expected = collect(feed_of(order, placement="resident"), range(20))
    monkeypatch.setattr(resident, "_MOST_INDICES_PER_BLOCK", 400)
    assert same_batches(collect(feed_of(order, placement="resident"), range(20)), expected)


def test_another_pass_changes_a_samples_image() -> None:
    order = make_order(48, shuffle=False)
    batches = collect(feed_of(order, placement="resident", micro=8), range(12))
    for first, second in zip(batches[:6], batches[6:], strict=True):
        assert torch.equal(first.labels, second.labels)
        same = (first.images == second.images).flatten(1).all(1)
        assert same.sum() == 0


def test_partner_labels_are_those_of_the_partners() -> None:
    order = make_order(bad=(4, 9))
    feed = feed_of(order, placement="resident", micro=8)
    partners: list[int] = []
    for update in range(6):
        samples = without_padding(order.indices(update))
        drawn = FULL.draw(samples, passes=order.passes(update, update + 1)[0], usable=order.usable())
        (batch,) = feed.micro_batches(update)
        assert batch.partner_labels is not None
        assert batch.mix is not None
        assert drawn.mix is not None
        assert np.array_equal(batch.mix.numpy(), drawn.mix)
        assert batch.labels.tolist() == small_source().fetch(samples)[1].tolist()
        assert batch.partner_labels.tolist() == small_source().fetch(drawn.indices[8:])[1].tolist()
        partners += drawn.indices[8:].tolist()
    assert not {4, 9} & set(partners)
    assert len(set(partners)) > 20


def test_without_mixup_there_are_no_partners() -> None:
    order = make_order()
    feed = feed_of(order, placement="resident", augmentation=replace(FULL, mixup=None))
    assert all(batch.mix is None and batch.partner_labels is None for batch in collect(feed, range(3)))


def test_a_source_that_crops_at_decode_is_streamed_and_told_the_pass() -> None:
    order = make_order(remainder="carry")
    spec = spec_of_small(small_source())
    source = SubsetSource(PassSource(), np.arange(50))

    def feed(placement: Placement) -> Feed:
        return make_feed(
            source,
            order=order,
            preprocess=Preprocess(spec),
            micro_batch_size=8,
            device=CPU,
            memory_budget_bytes=2**30,
            data_placement=placement,
            num_workers=0,
        )[0]

    chosen = feed("auto")
    assert isinstance(chosen, StreamFeed)
    for update in range(14):
        (batch,) = chosen.micro_batches(update)
        shown = (batch.images.flatten(1)[:, 0] * 255).round().long()
        assert shown.tolist() == order.passes(update, update + 1)[0].tolist()
    with pytest.raises(BadInputError, match="--data-placement stream"):
        feed("resident")


def test_evaluation_sees_images_as_they_are() -> None:
    images, _ = small_source().fetch(np.arange(50))
    expected = Preprocess(SPEC, 7)(channels_last_view(torch.from_numpy(images)))
    for source in (small_source(), PassSource()):
        for is_resident in (True, False):
            feed = EvaluationFeed(
                source, preprocess=Preprocess(SPEC, 7), batch_size=50, device=CPU, resident=is_resident
            )
            (batch,) = feed
            assert torch.equal(batch.images, expected)


def test_resident_data_are_never_written_to() -> None:
    order = make_order(48, shuffle=False)
    feed = feed_of(order, placement="resident", micro=8)
    assert isinstance(feed, ResidentFeed)
    first = collect(feed, range(1))
    first[0].images.zero_()
    collect(feed, range(3))
    again = collect(feed_of(order, placement="resident", micro=8), range(1))
    assert same_batches(collect(feed, range(1)), again)
