"""The random crop with a border of zeros."""

import numpy as np
import pytest

from drivetrain.data.augment.random_crop import PaddedCrop
from tests.data.augment.helpers import (
    as_array,
    as_float_images,
    assert_batch_does_not_matter,
    draws_of,
    numbers,
    random_pixels,
)


@pytest.mark.parametrize(("height", "width", "channels"), [(8, 8, 3), (5, 7, 1), (32, 32, 3)])
def test_equals_padding_and_slicing(height: int, width: int, channels: int) -> None:
    pixels = random_pixels(30, height, width, channels)
    draws = draws_of(PaddedCrop(), numbers(30))
    cropped = as_array(PaddedCrop().apply(as_float_images(pixels), draws))
    padded = np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)))
    for index, (top, left) in enumerate(draws.int().tolist()):
        expected = padded[index, top : top + height, left : left + width]
        assert np.array_equal(cropped[index], expected)
    assert not np.array_equal(cropped, pixels)


def test_all_places_are_alike() -> None:
    draws = draws_of(PaddedCrop(), numbers(81000)).long()
    counts = np.bincount((draws[:, 0] * 9 + draws[:, 1]).numpy(), minlength=81)
    assert len(counts) == 81
    assert counts.min() > 800
    assert counts.max() < 1200


def test_the_batch_does_not_matter() -> None:
    assert_batch_does_not_matter(PaddedCrop(padding=2), as_float_images(random_pixels(9, 5, 6)))
