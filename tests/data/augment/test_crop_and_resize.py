"""The random crop that is stretched back."""

import numpy as np
import pytest
import torch

from drivetrain.data.augment.crop_and_resize import CropAndResize
from tests.data.augment.by_hand import places_of
from tests.data.augment.dense_helpers import (
    assert_company_does_not_matter,
    assert_mask_follows_image,
    assert_sampled,
    dense_draws,
    random_images,
    random_labels,
)


@pytest.mark.parametrize("classes", [2, 5])
def test_equals_the_published_rule(classes: int) -> None:
    images, labels = random_images(5, 14, 11, 3), random_labels(5, 14, 11, classes=classes, codes=True)
    technique = CropAndResize(num_classes=classes)
    draws = dense_draws(technique, 5)
    found = technique.apply(images, labels, draws)
    places = [places_of(box, 14, 11) for box in draws.double().tolist()]
    assert_sampled(images, labels, found=found, places=places, classes=classes)
    shifted = [(y + 0.1, x) for y, x in places]
    with pytest.raises(AssertionError):
        assert_sampled(images, labels, found=found, places=shifted, classes=classes)


def test_values_are_as_exact_as_float32_allows() -> None:
    images, labels = random_images(3, 60, 50), random_labels(3, 60, 50)
    technique = CropAndResize(num_classes=2)
    draws = dense_draws(technique, 3)
    found = technique.apply(images, labels, draws)[0].double().numpy()
    for index, box in enumerate(draws.double().tolist()):
        y, x = places_of(box, 60, 50)
        top, left = np.floor(y).astype(int), np.floor(x).astype(int)
        plane = images[index, 0].double().numpy()
        upper = plane[top, left] * (1 - (x - left)) + plane[top, left + 1] * (x - left)
        lower = plane[top + 1, left] * (1 - (x - left)) + plane[top + 1, left + 1] * (x - left)
        assert np.abs(found[index, 0] - (upper * (1 - (y - top)) + lower * (y - top))).max() < 1e-6


def test_a_box_of_everything_changes_nothing() -> None:
    images, labels = random_images(2, 9, 12), random_labels(2, 9, 12, classes=3, codes=True)
    everything = torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2)
    moved, followed = CropAndResize(num_classes=3).apply(images, labels, everything)
    assert torch.allclose(moved, images, atol=1e-6)
    assert torch.equal(followed, labels)


def test_up_to_three_tenths_are_cut_off_each_side() -> None:
    top, left, bottom, right = dense_draws(CropAndResize(num_classes=2), 5000).unbind(1)
    for cut in (top, left, 1 - bottom, 1 - right):
        assert cut.min() >= 0
        assert 0.299 < cut.max() <= 0.3
        assert abs(cut.mean() - 0.15) < 0.005
    assert abs(torch.corrcoef(torch.stack([top, left, bottom, right])).triu(1)).max() < 0.05


def test_company_does_not_matter_and_the_mask_follows() -> None:
    technique = CropAndResize(num_classes=2)
    assert_company_does_not_matter(
        technique, random_images(6, 23, 21, 3), random_labels(6, 23, 21, codes=True)
    )
    assert_mask_follows_image(technique)
