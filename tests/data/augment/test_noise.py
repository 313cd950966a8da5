"""The random noise."""

import numpy as np
import torch

from drivetrain.data.augment.intensity import Noise
from tests.data.augment.by_hand import shifts_by_hand
from tests.data.augment.dense_helpers import (
    assert_company_does_not_matter,
    dense_draws,
    random_images,
    random_labels,
)


def test_equals_the_hash_by_hand() -> None:
    images, labels = random_images(3, 9, 7, 3), random_labels(3, 9, 7)
    technique = Noise(deviation=0.25)
    draws = dense_draws(technique, 3)
    noisy, kept = technique.apply(images, labels, draws)
    assert kept is labels
    for index, row in enumerate(draws.tolist()):
        expected = shifts_by_hand(row, 9 * 7 * 3).reshape(9, 7, 3) * 0.25
        found = (noisy - images)[index].permute(1, 2, 0).numpy()
        assert np.abs(found - expected).max() < 1e-6


def test_noise_is_normal_of_the_deviation_and_another_for_every_sample_and_pass() -> None:
    technique = Noise(deviation=0.1)
    images, labels = random_images(4, 100, 100), random_labels(4, 100, 100)
    first, second = (
        technique.apply(images, labels, dense_draws(technique, 4, number=number))[0] - images
        for number in (0, 1)
    )
    for noise in (first, second):
        assert abs(noise.std() - 0.1) < 0.002
        assert abs(noise.mean()) < 0.002
    together = torch.cat([first, second]).flatten(1)
    assert torch.corrcoef(together).triu(1).abs().max() < 0.05


def test_company_does_not_matter() -> None:
    assert_company_does_not_matter(
        Noise(deviation=0.1), random_images(6, 23, 21, 3), random_labels(6, 23, 21)
    )
