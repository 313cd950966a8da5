"""`--logs-per-epoch` and its nearest possible frequency."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain import make_plan
from drivetrain.core.errors import BadInputError
from drivetrain.plan.log_frequency import nearest_divisor, parse_logs_per_epoch


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1/3", Fraction(1, 3)),
        (" 1/3 ", Fraction(1, 3)),
        (str(1 / 3), Fraction(1, 3)),
        ("0.333", Fraction(333, 1000)),
        ("1.0", Fraction(1)),
        ("0", Fraction(0)),
        ("1e-9", Fraction(1, 10**9)),
    ],
)
def test_frequencies_are_read_exactly(text: str, value: Fraction) -> None:
    assert parse_logs_per_epoch(text) == value


@pytest.mark.parametrize("text", ["", "often", "1/0", "nan", "inf"])
def test_what_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(BadInputError, match="--logs-per-epoch"):
        parse_logs_per_epoch(text)


@pytest.mark.parametrize(("number", "target"), [(4, 2), (100, 10), (36, 6), (9, 3), (16, 4)])
def test_square_roots_are_divisors(number: int, target: int) -> None:
    assert nearest_divisor(number, target=target) == target


def test_of_two_equally_near_divisors_the_larger_is_taken() -> None:
    assert nearest_divisor(12, target=5) == 6
    assert nearest_divisor(15, target=4) == 5


@given(number=st.integers(1, 5000), target=st.fractions(0, 6000, max_denominator=100))
def test_nearest_divisor_is_the_nearest_of_all(number: int, target: Fraction) -> None:
    found = nearest_divisor(number, target=target)
    divisors = [candidate for candidate in range(1, number + 1) if number % candidate == 0]
    distance = min(abs(candidate - target) for candidate in divisors)
    assert found == max(candidate for candidate in divisors if abs(candidate - target) == distance)


@pytest.mark.parametrize("digits", [19, 60])
def test_a_third_written_with_many_digits_is_a_third(digits: int) -> None:
    for written in (f"0.{'3' * digits}", float(f"0.{'3' * digits}")):
        plan = make_plan(dataset="digits", num_epochs=3, logs_per_epoch=written)
        assert plan["execution"]["weight_updates"] == plan["total_updates"]
