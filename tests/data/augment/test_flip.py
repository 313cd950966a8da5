"""The random horizontal flip."""

import numpy as np

from drivetrain.data.augment.flip import HorizontalFlip
from tests.data.augment.helpers import (
    as_array,
    as_float_images,
    assert_batch_does_not_matter,
    draws_of,
    numbers,
    random_pixels,
)


def test_mirrors_what_was_drawn_and_nothing_else() -> None:
    pixels = random_pixels(40, 5, 6)
    draws = draws_of(HorizontalFlip(), numbers(40))
    flipped = as_array(HorizontalFlip().apply(as_float_images(pixels), draws))
    for index, is_mirrored in enumerate(draws[:, 0].tolist()):
        expected = pixels[index, :, ::-1] if is_mirrored else pixels[index]
        assert np.array_equal(flipped[index], expected)


def test_half_of_the_images_are_mirrored_and_others_in_the_next_pass() -> None:
    first, second = (draws_of(HorizontalFlip(), numbers(20000), number=number)[:, 0] for number in (0, 1))
    assert 0.48 < first.mean() < 0.52
    assert 0.48 < (first != second).float().mean() < 0.52


def test_the_batch_does_not_matter() -> None:
    assert_batch_does_not_matter(HorizontalFlip(), as_float_images(random_pixels(9, 5, 6)))
