"""The random rotation."""

from math import cos, radians, sin

import numpy as np
import pytest
import torch

from drivetrain.data.augment.warp import Rotate
from tests.data.augment.dense_helpers import (
    Plane,
    assert_company_does_not_matter,
    assert_mask_follows_image,
    assert_sampled,
    dense_draws,
    random_images,
    random_labels,
)


def places_of(degrees: float, height: int, width: int) -> tuple[Plane, Plane]:
    """Where each pixel comes from: turned about the middle."""
    y, x = np.meshgrid(
        np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij"
    )
    angle = radians(degrees)
    from_x = cos(angle) * x + sin(angle) * y
    from_y = cos(angle) * y - sin(angle) * x
    return from_y + (height - 1) / 2, from_x + (width - 1) / 2


@pytest.mark.parametrize("classes", [2, 4])
def test_equals_plain_loops(classes: int) -> None:
    images, labels = random_images(4, 13, 18, 2), random_labels(4, 13, 18, classes=classes, codes=True)
    technique = Rotate(degrees=180, num_classes=classes)
    draws = dense_draws(technique, 4)
    found = technique.apply(images, labels, draws)
    places = [places_of(degrees, 13, 18) for degrees in draws[:, 0].tolist()]
    assert_sampled(images, labels, found=found, places=places, classes=classes)
    other_way = [places_of(-degrees, 13, 18) for degrees in draws[:, 0].tolist()]
    with pytest.raises(AssertionError):
        assert_sampled(images, labels, found=found, places=other_way, classes=classes)


def test_right_angles_are_exact_turns() -> None:
    images, labels = random_images(2, 12, 12), random_labels(2, 12, 12, classes=3)
    moved, followed = Rotate(degrees=90, num_classes=3).apply(images, labels, torch.tensor([[90.0], [-90.0]]))
    for index, turns in enumerate((1, -1)):
        expected = torch.rot90(images[index], turns, (2, 1))
        assert torch.allclose(moved[index], expected, atol=1e-4)
        assert torch.equal(followed[index], torch.rot90(labels[index], turns, (1, 0)))


def test_the_padding_stays_and_nothing_of_it_comes_in() -> None:
    images = torch.nn.functional.pad(random_images(3, 16, 14) * 0 + 0.75, (5,) * 4)
    labels = torch.nn.functional.pad(random_labels(3, 16, 14) * 0 + 1, (0, 0, 5, 5, 5, 5))
    draws = torch.tensor([[33.0], [-71.0], [180.0]])
    moved, followed = Rotate(degrees=180, num_classes=2, padding=5).apply(images, labels, draws)
    assert torch.allclose(moved, images, atol=1e-6)
    assert torch.equal(followed, labels)
    unpadded, _ = Rotate(degrees=180, num_classes=2).apply(images, labels, draws)
    assert not torch.allclose(unpadded, images, atol=0.1)


def test_angles_go_up_to_the_one_asked_for_either_way() -> None:
    angles = dense_draws(Rotate(degrees=25, num_classes=2), 5000)
    assert -25 <= angles.min() < -24.9
    assert 24.9 < angles.max() <= 25
    assert abs(angles.mean()) < 0.8


def test_company_does_not_matter_and_the_mask_follows() -> None:
    technique = Rotate(degrees=60, num_classes=2, padding=2)
    assert_company_does_not_matter(
        technique, random_images(6, 23, 21, 3), random_labels(6, 23, 21, codes=True)
    )
    assert_mask_follows_image(Rotate(degrees=60, num_classes=2))
