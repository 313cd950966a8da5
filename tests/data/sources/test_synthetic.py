"""The generated task: pure, balanced, learnable."""

import numpy as np
import pytest

from drivetrain.data.source import DataSplits
from drivetrain.data.sources.synthetic import open_synthetic


def make(
    *, seed: int = 0, size: int = 400, channels: int = 3, image_size: int = 16, num_classes: int = 10
) -> DataSplits:
    return open_synthetic(
        seed=seed, dataset_size=size, channels=channels, image_size=image_size, num_classes=num_classes
    )


def test_shape_follows_the_recipe_and_defaults_are_known() -> None:
    images, labels = make(channels=2, image_size=9, num_classes=3).train.fetch(np.arange(7))
    assert images.shape == (7, 9, 9, 2)
    assert images.dtype == np.uint8
    assert labels.max() == 2
    default = open_synthetic(seed=0, dataset_size=None, channels=None, image_size=None, num_classes=None)
    assert (default.spec.channels, default.spec.height, default.spec.num_classes) == (3, 32, 10)
    assert default.validation is not None
    assert (len(default.train), len(default.validation)) == (1024, 256)


def test_a_sample_does_not_depend_on_its_company() -> None:
    source = make().train
    images, labels = source.fetch(np.arange(400))
    for indices in (np.array([399]), np.array([17, 3, 17]), np.arange(0, 400, 7)):
        some_images, some_labels = source.fetch(indices)
        assert np.array_equal(some_images, images[indices])
        assert np.array_equal(some_labels, labels[indices])


def test_seed_and_split_change_the_samples() -> None:
    splits = make()
    assert splits.validation is not None
    first = splits.train.fetch(np.arange(10))[0]
    assert np.array_equal(first, make().train.fetch(np.arange(10))[0])
    assert not np.array_equal(first, make(seed=1).train.fetch(np.arange(10))[0])
    assert not np.array_equal(first, splits.validation.fetch(np.arange(10))[0])


def test_classes_are_balanced() -> None:
    labels = make(size=403).train.fetch(np.arange(403))[1]
    counts = np.bincount(labels, minlength=10)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("image_size", "channels", "least"), [(32, 3, 0.99), (16, 1, 0.95), (8, 1, 0.8)])
def test_nearest_class_mean_learns_it(image_size: int, channels: int, least: float) -> None:
    splits = make(image_size=image_size, channels=channels)
    assert splits.validation is not None
    images, labels = splits.train.fetch(np.arange(400))
    unseen, answers = splits.validation.fetch(np.arange(100))
    flat = images.reshape(400, -1).astype(np.float64)
    means = np.stack([flat[labels == label].mean(axis=0) for label in range(10)])
    distances = ((unseen.reshape(100, 1, -1).astype(np.float64) - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == answers).mean() >= least


def test_noise_leaves_the_brightness_range_in_use() -> None:
    images = make().train.fetch(np.arange(100))[0]
    assert 120 < images.mean() < 135
    assert images.min() < 40
    assert images.max() > 215
