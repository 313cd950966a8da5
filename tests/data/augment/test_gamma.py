"""The random gamma."""

import numpy as np
import torch

from drivetrain.data.augment.intensity import Gamma
from tests.data.augment.dense_helpers import (
    assert_company_does_not_matter,
    dense_draws,
    random_images,
    random_labels,
)

TECHNIQUE = Gamma(spread=0.4)


def test_equals_the_formula_and_leaves_labels() -> None:
    images, labels = random_images(5, 9, 8, 3), random_labels(5, 9, 8)
    images[0, :, 0, 0], images[0, :, 0, 1] = -1, 1
    draws = dense_draws(TECHNIQUE, 5)
    changed, kept = TECHNIQUE.apply(images, labels, draws)
    assert kept is labels
    for index, power in enumerate(draws[:, 0].tolist()):
        expected = ((images[index].double().numpy() + 1) / 2) ** power * 2 - 1
        assert np.abs(changed[index].numpy() - expected).max() < 1e-6
    assert changed[0, :, 0, :2].tolist() == [[-1.0, 1.0]] * 3
    assert (changed - images).abs().max() > 0.05


def test_powers_go_from_1_less_to_1_more() -> None:
    powers = dense_draws(TECHNIQUE, 5000)
    assert 0.6 <= powers.min() < 0.605
    assert 1.395 < powers.max() <= 1.4
    assert not torch.equal(powers, dense_draws(TECHNIQUE, 5000, number=1))


def test_company_does_not_matter() -> None:
    assert_company_does_not_matter(TECHNIQUE, random_images(6, 23, 21, 3), random_labels(6, 23, 21))
