"""Mixup: partners, shares, and the mixture."""

import numpy as np
import pytest
import torch
from scipy.stats import beta, kstest

from drivetrain.data.augment.mixup import Mixup, mix_images
from tests.data.augment.helpers import as_array, as_float_images, in_pass, numbers, random_pixels


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_larger_part_of_a_beta_cut_is_the_samples_own(alpha: float) -> None:
    indices = numbers(5000)
    mix = Mixup(alpha=alpha).draw_mix(3, passes=in_pass(0, indices), indices=indices)
    assert mix.dtype == np.float32
    assert mix.min() >= 0.5
    assert mix.max() <= 1
    # Of a symmetric distribution the larger part has twice the density.
    assert kstest(mix, lambda share: 2 * beta.cdf(share, alpha, alpha) - 1).statistic < 0.04
    assert kstest(mix, lambda share: 2 * beta.cdf(share, 2 * alpha, 2 * alpha) - 1).statistic > 0.1


def test_partners_come_from_all_usable_samples_alike() -> None:
    usable = np.setdiff1d(numbers(50), np.array([0, 7, 49]))
    indices = numbers(47000)
    first, second = (
        Mixup(alpha=1).draw_partners(3, passes=in_pass(number, indices), indices=indices, usable=usable)
        for number in (0, 1)
    )
    counts = np.bincount(first, minlength=50)
    assert counts[[0, 7, 49]].tolist() == [0, 0, 0]
    assert counts[usable].min() > 850
    assert counts[usable].max() < 1150
    assert (first != second).mean() > 0.9


def test_images_are_mixed_by_share() -> None:
    pixels = random_pixels(6, 4, 5)
    mix = np.array([1.0, 0.75, 0.5], dtype=np.float32)
    mixed = as_array(mix_images(as_float_images(pixels), torch.from_numpy(mix)))
    share = mix[:, None, None, None]
    assert np.allclose(mixed, pixels[:3] * share + pixels[3:] * (1 - share), atol=1e-4)
    assert np.array_equal(mixed[0], pixels[0])
