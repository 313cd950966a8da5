"""scikit-learn's digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from drivetrain.data.sources import digits
from drivetrain.data.sources.digits import open_digits


def test_values_are_scaled_to_bytes_and_equal_the_packages_own() -> None:
    splits = open_digits()
    images, labels = splits.train.fetch(np.arange(len(splits.train)))
    expected = load_digits()
    assert images.shape == (1797, 8, 8, 1)
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 255)
    by_definition = [round(value * 255 / 16) for value in range(17)]
    assert np.array_equal(images[..., 0], np.array(by_definition)[expected.images.astype(int)])
    assert np.array_equal(labels, expected.target)
    assert splits.validation is None


def test_without_the_packaged_file_the_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = open_digits().train.fetch(np.arange(1797))
    monkeypatch.setattr(digits, "_packaged_file", lambda: None)
    asked = open_digits().train.fetch(np.arange(1797))
    assert np.array_equal(direct[0], asked[0])
    assert np.array_equal(direct[1], asked[1])
