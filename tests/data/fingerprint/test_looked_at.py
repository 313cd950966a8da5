"""Which samples a fingerprint opens."""

import pytest

from drivetrain.data.fingerprint.looked_at import spread_indices


@pytest.mark.parametrize(
    ("length", "most", "expected"),
    [(0, 5, []), (3, 5, [0, 1, 2]), (10, 5, [0, 2, 4, 6, 8]), (7, 3, [0, 2, 4])],
)
def test_indices_are_spread_evenly(length: int, most: int, expected: list[int]) -> None:
    assert spread_indices(length, most=most).tolist() == expected
