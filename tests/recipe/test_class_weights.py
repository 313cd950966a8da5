"""What pixels count, by their class."""

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.class_weights import class_weights_of, pixel_class_weights

COUNTS = np.array([300, 100, 0], dtype=np.int64)


def test_balanced_is_the_inverse_frequency_with_mean_1_over_the_pixels() -> None:
    weights = pixel_class_weights(["balanced"], COUNTS, num_classes=3)
    assert weights.dtype == np.float32
    assert np.allclose(weights, [400 / 600, 400 / 200, 0])
    assert np.isclose((weights * COUNTS).sum(), COUNTS.sum())


def test_given_weights_keep_their_ratios() -> None:
    weights = pixel_class_weights(["1,3", "2"], COUNTS, num_classes=3)
    assert np.allclose(weights / weights[0], [1, 3, 2])
    assert np.isclose((weights * COUNTS).sum(), COUNTS.sum())


def test_pixels_and_samples_are_weighed_alike() -> None:
    labels = np.repeat(np.arange(3), COUNTS)
    for given in (["balanced"], ["1", "3", "2"]):
        assert np.array_equal(
            class_weights_of(given, labels, num_classes=3), pixel_class_weights(given, COUNTS, num_classes=3)
        )


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"2 numbers but there are 3 classes"):
        pixel_class_weights(["1", "2"], COUNTS, num_classes=3)
    with pytest.raises(BadInputError, match=r"every training pixel the weight 0"):
        pixel_class_weights(["0", "0", "1"], COUNTS, num_classes=3)
