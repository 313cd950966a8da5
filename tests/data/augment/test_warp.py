"""The random elastic deformation."""

import numpy as np
import pytest
import torch

from drivetrain.data.augment.warp import Elastic, largest_shift
from tests.data.augment.by_hand import shifts_by_hand
from tests.data.augment.dense_helpers import (
    Plane,
    assert_company_does_not_matter,
    assert_mask_follows_image,
    assert_sampled,
    dense_draws,
    random_images,
    random_labels,
)


def cubic_weights(points: int, length: int) -> Plane:
    """(length, points): cubic convolution with a = -0.75 between points from end to end, ends repeated."""

    def kernel(distance: float) -> float:
        a, d = -0.75, abs(distance)
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0

    weights = np.zeros((length, points))
    for pixel in range(length):
        place = pixel * (points - 1) / (length - 1)
        for point in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            weights[pixel, min(max(point, 0), points - 1)] += kernel(place - point)
    return weights


def places_of(
    draws: list[float], *, shift: float, size: tuple[int, int], points: tuple[int, int]
) -> tuple[Plane, Plane]:
    shifts = shifts_by_hand(draws, 2 * points[0] * points[1]).reshape(2, *points) * shift
    down, across = (cubic_weights(count, length) for count, length in zip(points, size, strict=True))
    fields = [down @ plane @ across.T for plane in shifts]
    y, x = np.meshgrid(np.arange(size[0]), np.arange(size[1]), indexing="ij")
    return y + fields[1], x + fields[0]


@pytest.mark.parametrize(
    ("shift", "classes", "points"), [(2.0, 2, (3, 2)), (7.5, 3, (3, 2)), (20.0, 2, (2, 2))]
)
def test_equals_plain_loops(shift: float, classes: int, points: tuple[int, int]) -> None:
    size = (130, 70)
    images, labels = random_images(2, *size), random_labels(2, *size, classes=classes, codes=True)
    technique = Elastic(shift=shift, num_classes=classes)
    draws = dense_draws(technique, 2)
    found = technique.apply(images, labels, draws)
    places = [places_of(row, shift=shift, size=size, points=points) for row in draws.tolist()]
    assert_sampled(images, labels, found=found, places=places, classes=classes)
    with pytest.raises(AssertionError):
        assert_sampled(images, labels, found=found, places=places[::-1], classes=classes)


def test_shifts_have_the_deviation_asked_for() -> None:
    ramp = torch.arange(128.0).expand(40, 1, 128, 128).contiguous()
    technique = Elastic(shift=3.0, num_classes=2)
    moved, _ = technique.apply(ramp, random_labels(40, 128, 128), dense_draws(technique, 40))
    shifts = (moved - ramp)[:, :, :, 20:-20]
    assert 1.8 < shifts.std() < 3.3
    # Smooth: from pixel to pixel a shift hardly changes.
    assert shifts.diff(dim=2).abs().max() < 0.5


def test_the_padding_stays() -> None:
    images = torch.nn.functional.pad(random_images(3, 64, 70) * 0 + 0.75, (5,) * 4)
    labels = torch.nn.functional.pad(random_labels(3, 64, 70) * 0 + 1, (0, 0, 5, 5, 5, 5))
    technique = Elastic(shift=6, num_classes=2, padding=5)
    moved, followed = technique.apply(images, labels, dense_draws(technique, 3))
    assert torch.allclose(moved, images, atol=1e-6)
    assert torch.equal(followed, labels)


def test_the_largest_shift_leaves_one_interval() -> None:
    assert largest_shift(388) == 48.5


def test_keys_differ_from_sample_to_sample_and_pass_to_pass() -> None:
    technique = Elastic(shift=6, num_classes=2)
    first, second = (dense_draws(technique, 500, number=number) for number in (0, 1))
    assert len({tuple(row) for row in torch.cat([first, second]).tolist()}) == 1000
    assert torch.equal(first, first.floor())
    assert first.max() < 2**24


def test_company_does_not_matter_and_the_mask_follows() -> None:
    technique = Elastic(shift=3, num_classes=2, padding=2)
    assert_company_does_not_matter(
        technique, random_images(6, 83, 71, 3), random_labels(6, 83, 71, codes=True)
    )
    assert_mask_follows_image(Elastic(shift=4, num_classes=2))
