"""The words and durations of --budget."""

import pytest

from drivetrain.auto.budget import budget_s
from drivetrain.core.errors import BadInputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("quick", 120.0), ("normal", 900.0), ("best", 7200.0), ("10m", 600.0), ("2h", 7200.0), ("90", 90.0)],
)
def test_words_and_durations(text: str, seconds: float) -> None:
    assert budget_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "works"), [("9s", "--budget 10s"), ("0", "--budget 10m"), ("fast", "--budget 10m")]
)
def test_others_are_refused_with_one_that_works(text: str, works: str) -> None:
    with pytest.raises(BadInputError, match=f"{works} works"):
        budget_s(text)
