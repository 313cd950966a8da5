"""Every sample exactly once."""

import numpy as np
import pytest
import torch

from drivetrain.data.feeds.evaluation_feed import EvaluationFeed
from drivetrain.data.preprocess import Preprocess, channels_last_view
from tests.data.helpers import CPU, float_source, same_batches, small_source, spec_of_small


def make_feed(*, resident: bool, batch_size: int = 8, num_workers: int = 0) -> EvaluationFeed:
    source = small_source()
    return EvaluationFeed(
        source,
        preprocess=Preprocess(spec_of_small(source), 7),
        batch_size=batch_size,
        device=CPU,
        resident=resident,
        num_workers=num_workers,
    )


@pytest.mark.parametrize("resident", [True, False])
def test_every_sample_once_in_order_with_a_partial_last_batch(resident: bool) -> None:
    source = small_source()
    images, labels = source.fetch(np.arange(50))
    expected = Preprocess(spec_of_small(source), 7)(channels_last_view(torch.from_numpy(images)))
    feed = make_feed(resident=resident)
    assert len(feed) == 7
    for _ in range(2):
        batches = list(feed)
        assert [len(batch.labels) for batch in batches] == [8, 8, 8, 8, 8, 8, 2]
        assert torch.equal(torch.cat([batch.images for batch in batches]), expected)
        assert torch.cat([batch.labels for batch in batches]).tolist() == labels.tolist()
        assert torch.cat([batch.slots for batch in batches]).tolist() == list(range(50))
        assert all(batch.weights is None for batch in batches)


def test_resident_streamed_and_with_a_loader_worker_are_bitwise_equal() -> None:
    expected = list(make_feed(resident=True))
    assert same_batches(list(make_feed(resident=False)), expected)
    assert same_batches(list(make_feed(resident=False, num_workers=1)), expected)


def test_a_batch_larger_than_the_set_is_the_set() -> None:
    (batch,) = make_feed(resident=True, batch_size=1000)
    assert len(batch.labels) == 50


def test_what_a_model_does_to_its_input_does_not_reach_the_data() -> None:
    source, spec = float_source()
    feed = EvaluationFeed(source, preprocess=Preprocess(spec), batch_size=20, device=CPU, resident=True)
    for _ in range(2):
        (batch,) = feed
        assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), source.images)
        batch.images.zero_()
