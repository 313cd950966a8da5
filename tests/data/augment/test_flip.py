"""The random flips."""

from typing import Literal

import numpy as np
import pytest
import torch

from drivetrain.data.augment.flip import DenseFlip, Flip
from tests.data.augment.dense_helpers import (
    assert_company_does_not_matter,
    assert_mask_follows_image,
    dense_draws,
    random_images,
    random_labels,
)
from tests.data.augment.helpers import (
    as_array,
    as_float_images,
    assert_batch_does_not_matter,
    draws_of,
    numbers,
    random_pixels,
)


@pytest.mark.parametrize(("direction", "axis"), [("horizontal", 1), ("vertical", 0)])
def test_mirrors_what_was_drawn_and_nothing_else(
    direction: Literal["horizontal", "vertical"], axis: int
) -> None:
    pixels = random_pixels(40, 5, 6)
    draws = draws_of(Flip(direction), numbers(40))
    flipped = as_array(Flip(direction).apply(as_float_images(pixels), draws))
    for index, is_mirrored in enumerate(draws[:, 0].tolist()):
        expected = np.flip(pixels[index], axis) if is_mirrored else pixels[index]
        assert np.array_equal(flipped[index], expected)


def test_half_of_the_images_are_mirrored_and_others_in_the_next_pass() -> None:
    first, second = (draws_of(Flip("horizontal"), numbers(20000), number=number)[:, 0] for number in (0, 1))
    assert 0.48 < first.mean() < 0.52
    assert 0.48 < (first != second).float().mean() < 0.52


def test_the_batch_does_not_matter() -> None:
    assert_batch_does_not_matter(Flip("horizontal"), as_float_images(random_pixels(9, 5, 6)))


@pytest.mark.parametrize(("direction", "axis"), [("horizontal", 2), ("vertical", 1)])
def test_image_and_labels_are_mirrored_together(
    direction: Literal["horizontal", "vertical"], axis: int
) -> None:
    technique = DenseFlip(direction)
    images, labels = random_images(20, 5, 6, 3), random_labels(20, 5, 6, classes=3, codes=True)
    draws = dense_draws(technique, 20)
    moved, followed = technique.apply(images, labels, draws)
    for index, is_mirrored in enumerate(draws[:, 0].tolist()):
        for before, after in ((images.permute(0, 2, 3, 1), moved.permute(0, 2, 3, 1)), (labels, followed)):
            expected = np.flip(before[index].numpy(), axis - 1) if is_mirrored else before[index].numpy()
            assert np.array_equal(after[index].numpy(), expected)
    assert 0 < draws.sum() < 20
    assert_company_does_not_matter(technique, images, labels)
    assert_mask_follows_image(technique)


def test_directions_are_drawn_apart() -> None:
    across = dense_draws(DenseFlip("horizontal"), 20000)[:, 0]
    down = dense_draws(DenseFlip("vertical"), 20000)[:, 0]
    assert 0.48 < across.mean() < 0.52
    assert 0.48 < (across != down).float().mean() < 0.52
    assert torch.equal(across, draws_of(Flip("horizontal"), numbers(20000))[:, 0])
