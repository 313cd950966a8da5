"""Whole images of any sizes, one at a time."""

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.whole_images import WholeImageFeed
from drivetrain.data.masks.masked_images import HeldMaskedImages
from tests.data.dense_samples import dense_spec
from tests.data.helpers import CPU
from tests.data.test_tile_source import SIZES, Numbered


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
    with pytest.raises(BadInputError, match="label 2, but labels go from 0 to 1; --num-classes"):
        list(WholeImageFeed(held, spec=dense_spec(), device=CPU))
