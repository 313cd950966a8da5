"""Data that lie on the device whole."""

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds import resident
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.order import SampleOrder, micro_batch_slice, without_padding
from drivetrain.data.preprocess import Preprocess, channels_last_view
from drivetrain.data.source import ArraySource, Source
from drivetrain.recipe.schema import Remainder
from tests.data.helpers import (
    CPU,
    collect,
    float_source,
    make_order,
    same_batches,
    small_source,
    spec_of_small,
)


def make_feed(
    order: SampleOrder,
    *,
    source: Source | None = None,
    micro: int = 4,
    replica: int = 0,
    replicas: int = 1,
    image_size: int | None = None,
) -> ResidentFeed:
    return ResidentFeed(
        source or small_source(),
        order=order,
        preprocess=Preprocess(spec_of_small(small_source()), image_size),
        micro_batch_size=micro,
        device=CPU,
        replica=replica,
        replicas=replicas,
    )


@pytest.mark.parametrize("remainder", ["trim", "pad", "carry"])
@pytest.mark.parametrize(("replicas", "micro"), [(1, 8), (1, 2), (2, 2)])
def test_feeds_what_the_order_says(remainder: Remainder, replicas: int, micro: int) -> None:
    order, source = make_order(remainder=remainder), small_source()
    preprocess = Preprocess(spec_of_small(source))
    for replica in range(replicas):
        feed = make_feed(order, micro=micro, replica=replica, replicas=replicas)
        for update in range(15):
            samples = order.indices(update)
            batches = list(feed.micro_batches(update))
            assert len(batches) == 8 // (replicas * micro)
            for index, batch in enumerate(batches):
                here = micro_batch_slice(index, replica=replica, replicas=replicas, micro=micro)
                images, labels = source.fetch(without_padding(samples)[here])
                assert torch.equal(batch.images, preprocess(channels_last_view(torch.from_numpy(images))))
                assert batch.labels.tolist() == labels.tolist()
                assert batch.slots.tolist() == list(range(here.start, here.stop))
                if -1 in samples:
                    assert batch.weights is not None
                    assert batch.weights.tolist() == (samples[here] >= 0).astype(float).tolist()
                else:
                    assert batch.weights is None


def test_images_are_float32_and_channels_last() -> None:
    (batch, *_) = make_feed(make_order(), image_size=9).micro_batches(0)
    assert batch.images.dtype == torch.float32
    assert batch.images.shape == (4, 3, 9, 9)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.labels.dtype == batch.slots.dtype == torch.int64


@pytest.mark.parametrize("remainder", ["trim", "pad", "carry"])
def test_any_update_can_be_asked_for_first(remainder: Remainder) -> None:
    straight = collect(make_feed(make_order(remainder=remainder)), range(20))
    for first in (0, 5, 6, 7, 13, 19):
        resumed = collect(make_feed(make_order(remainder=remainder)), range(first, 20))
        assert same_batches(resumed, straight[2 * first :])
    other_order = collect(make_feed(make_order(remainder=remainder, seed=4)), range(20))
    assert not same_batches(other_order, straight)


def test_the_size_of_the_moved_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    straight = collect(make_feed(make_order(remainder="carry")), range(20))
    monkeypatch.setattr(resident, "_MOST_INDICES_PER_BLOCK", 24)
    assert same_batches(collect(make_feed(make_order(remainder="carry")), range(20)), straight)


def test_an_epoch_is_moved_once_and_short_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    original = SampleOrder.rows

    def counted(order: SampleOrder, first: int, stop: int) -> np.ndarray:
        calls.append((first, stop))
        return original(order, first, stop)

    monkeypatch.setattr(SampleOrder, "rows", counted)
    collect(make_feed(make_order()), range(12))
    assert calls == [(0, 64)]
    calls.clear()
    monkeypatch.setattr(resident, "_FEWEST_UPDATES_PER_BLOCK", 1)
    collect(make_feed(make_order()), range(12))
    assert calls == [(0, 6), (6, 12)]


def test_floating_samples_are_fed_as_they_are_and_never_written_to() -> None:
    source, spec = float_source()
    feed = ResidentFeed(
        source,
        order=make_order(20, global_batch=20, shuffle=False),
        preprocess=Preprocess(spec),
        micro_batch_size=20,
        device=CPU,
    )
    for _ in range(2):
        (batch,) = feed.micro_batches(0)
        assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), source.images)
        batch.images.zero_()


def test_labels_beyond_the_classes_are_refused() -> None:
    images, _ = small_source().fetch(np.arange(50))
    source = ArraySource(images=images, labels=np.arange(50, dtype=np.int64))
    with pytest.raises(BadInputError, match="label 10"):
        make_feed(make_order(), source=source)


def test_time_is_accounted_for() -> None:
    feed = make_feed(make_order())
    collect(feed, range(3))
    assert feed.data_seconds > 0
    assert feed.transfer_seconds > 0
    feed.close()
