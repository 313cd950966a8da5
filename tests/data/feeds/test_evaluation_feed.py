"""Every sample exactly once."""

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.evaluation_feed import EvaluationFeed, WholeImageFeed
from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.preprocess import Preprocess, channels_last_view
from tests.data.dense_samples import dense_spec
from tests.data.helpers import CPU, float_source, same_batches, small_source, spec_of_small
from tests.data.numbered_images import SIZES, Numbered


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


def test_every_image_comes_once_in_its_own_size() -> None:
    masked = Numbered()
    feed = WholeImageFeed(masked, spec=dense_spec(channels=2, classes=250), device=CPU)
    assert len(feed) == len(SIZES)
    for _ in range(2):
        batches = list(feed)
        assert [batch.slots.tolist() for batch in batches] == [[index] for index in range(len(SIZES))]
        for index, (size, batch) in enumerate(zip(SIZES, batches, strict=True)):
            image, mask = masked.whole(index)
            assert batch.images.shape == (1, 2, *size)
            assert batch.images.dtype == torch.float32
            expected = torch.from_numpy(image).permute(2, 0, 1) / 127.5 - 1
            assert torch.equal(batch.images[0], expected)
            assert torch.equal(batch.labels[0], torch.from_numpy(mask))
            assert batch.weights is None


def test_a_model_that_writes_into_its_input_changes_no_image() -> None:
    images = np.ones((1, 4, 4, 1), np.float32)
    held = HeldMaskedImages(images=images, masks=np.zeros((1, 4, 4, 1), np.uint8), names=("a",))
    feed = WholeImageFeed(held, spec=dense_spec(image_dtype="float32"), device=CPU)
    for batch in feed:
        batch.images.zero_()
        batch.labels.fill_(9)
    assert images.min() == 1
    assert held.masks.max() == 0


def test_a_label_outside_the_classes_is_refused() -> None:
    held = HeldMaskedImages(
        images=np.zeros((1, 4, 4, 1), np.uint8), masks=np.full((1, 4, 4, 1), 2, np.uint8), names=("a",)
    )
    with pytest.raises(
        BadInputError, match="label 2, but labels must be from 0 to 1; correct the label, or "
    ):
        list(WholeImageFeed(held, spec=dense_spec(), device=CPU))
