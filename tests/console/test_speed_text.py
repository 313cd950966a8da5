"""Throughputs that people can read, however small."""

import math

import pytest

from drivetrain.console.speed_text import rounded_speed, speed_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (6966.4, "6966"),
        (10.4, "10"),
        (9.97, "10"),
        (9.94, "9.9"),
        (2.0, "2.0"),
        (0.43, "0.43"),
        (0.0345, "0.035"),
        (0.0, "0"),
        (math.nan, "nan"),
    ],
)
def test_two_significant_digits_below_10(value: float, text: str) -> None:
    assert speed_text(value) == text


@pytest.mark.parametrize(("value", "kept"), [(6966.44, 6966.4), (9.8765, 9.88), (0.03456, 0.0346)])
def test_what_files_keep_of_a_small_one(value: float, kept: float) -> None:
    assert rounded_speed(value) == kept
