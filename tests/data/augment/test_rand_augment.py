"""RandAugment as a technique: which image gets what."""

import numpy as np
import pytest
import torch

from drivetrain.data.augment.rand_augment import OPERATIONS, RandAugment, apply_everywhere, apply_in_groups
from tests.data.augment.helpers import (
    as_array,
    as_float_images,
    assert_batch_does_not_matter,
    draws_of,
    numbers,
    random_pixels,
)


def test_each_image_goes_through_its_own_operations_in_turn() -> None:
    images = as_float_images(random_pixels(40, 8, 9))
    technique = RandAugment(operations=2, magnitude=7)
    draws = draws_of(technique, numbers(40))
    changed = technique.apply(images, draws)
    for index, (first, first_strength, second, second_strength) in enumerate(draws.tolist()):
        alone = OPERATIONS[int(first)](images[index : index + 1], torch.tensor([first_strength]))
        alone = OPERATIONS[int(second)](alone, torch.tensor([second_strength]))
        assert torch.equal(changed[index : index + 1], alone)


def test_operations_and_signs_are_drawn_evenly_at_one_strength() -> None:
    draws = draws_of(RandAugment(operations=2, magnitude=9), numbers(14000))
    for chosen, strength in ((0, 1), (2, 3)):
        counts = np.bincount(draws[:, chosen].long().numpy())
        assert len(counts) == len(OPERATIONS)
        assert counts.min() > 850
        assert counts.max() < 1150
        assert abs(draws[:, strength].mean()) < 0.03
        assert torch.allclose(draws[:, strength].abs(), torch.tensor(0.9))
    assert (draws[:, 0] != draws[:, 2]).any()


def test_both_ways_of_applying_are_one() -> None:
    pixels = torch.from_numpy(random_pixels(56, 8, 8).astype(np.float32))
    chosen = torch.arange(56) % len(OPERATIONS)
    strengths = torch.linspace(-1, 1, 56)
    assert torch.equal(
        apply_in_groups(pixels, chosen, strengths), apply_everywhere(pixels, chosen, strengths)
    )
    assert not torch.equal(
        apply_in_groups(pixels, chosen, strengths), apply_everywhere(pixels, chosen.flip(0), strengths)
    )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_values_stay_pixels(channels: int) -> None:
    images = as_float_images(random_pixels(60, 8, 8, channels))
    technique = RandAugment(operations=3, magnitude=10)
    changed = as_array(technique.apply(images, draws_of(technique, numbers(60))))
    assert changed.min() >= 0
    assert changed.max() <= 255


def test_the_batch_does_not_matter() -> None:
    images = as_float_images(random_pixels(28, 8, 9))
    assert_batch_does_not_matter(RandAugment(operations=3, magnitude=9), images)
