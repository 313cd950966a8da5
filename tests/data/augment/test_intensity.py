"""The random brightness."""

import numpy as np
import torch

from drivetrain.data.augment.intensity import Brightness
from tests.data.augment.dense_helpers import (
    assert_company_does_not_matter,
    dense_draws,
    random_images,
    random_labels,
)


def test_adds_one_number_to_an_image_and_clips() -> None:
    images, labels = random_images(5, 9, 8, 3), random_labels(5, 9, 8)
    draws = dense_draws(Brightness(), 5)
    changed, kept = Brightness().apply(images, labels, draws)
    assert kept is labels
    for index, delta in enumerate(draws[:, 0].tolist()):
        expected = np.clip(images[index].double().numpy() + delta, -1, 1)
        assert np.abs(changed[index].numpy() - expected).max() < 1e-7
    assert changed.abs().max() == 1
    assert (images + draws[:, :, None, None]).abs().max() > 1


def test_one_fifth_is_the_most() -> None:
    deltas = dense_draws(Brightness(), 5000)
    assert -0.2 <= deltas.min() < -0.199
    assert 0.199 < deltas.max() <= 0.2
    assert abs(deltas.mean()) < 0.005
    assert not torch.equal(deltas, dense_draws(Brightness(), 5000, seed=4))


def test_company_does_not_matter() -> None:
    assert_company_does_not_matter(Brightness(), random_images(6, 23, 21, 3), random_labels(6, 23, 21))
