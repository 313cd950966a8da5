"""Whether two values of one field say the same."""

from typing import Any

import pytest

from drivetrain.recipe.spellings import mean_the_same


@pytest.mark.parametrize(
    ("field", "value", "other", "same"),
    [
        ("learning_rate", "0.1", "1e-1", True),
        ("learning_rate", "0.1", "0.2", False),
        ("checkpoints", "no", False, True),
        ("checkpoints", "no", True, False),
        ("loss_scaling", "0", 0.0, True),
        ("loss_scaling", "128", "dynamic", False),
        ("model", "lenet", "lenet", True),
        ("learning_rate", "x", "x", True),
        ("learning_rate", "x", "0.1", False),
    ],
)
def test_values_are_compared_as_the_field_takes_them(field: str, value: Any, other: Any, same: bool) -> None:
    assert mean_the_same(field, value, other) is same
