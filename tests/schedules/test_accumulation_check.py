"""Accumulations that a schedule cannot take are refused; others are warned of with their cost."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.schedules.accumulation_check import check_accumulation


@pytest.mark.parametrize(
    ("accumulation", "works"),
    [(1, "8 or 16"), (4, "8 or 16"), (9, "8 or 16"), (12, "8 or 16"), (1001, "1000 or 1008")],
)
def test_grouped_needs_whole_groups(accumulation: int, works: str) -> None:
    with pytest.raises(
        BadInputError, match=rf"not {accumulation} .*--gradient-accumulation-count {works} works"
    ):
        check_accumulation("grouped", stages=4, accumulation=accumulation)


def test_the_refusal_is_one_sentence() -> None:
    with pytest.raises(BadInputError) as refusal:
        check_accumulation("grouped", stages=4, accumulation=12)
    assert str(refusal.value) == (
        "The grouped schedule with 4 stages needs a multiple of 8 accumulated micro-batches, not 12 "
        "(--gradient-accumulation-count); --gradient-accumulation-count 8 or 16 works."
    )


def test_a_global_batch_that_was_asked_for_is_what_has_to_change() -> None:
    with pytest.raises(BadInputError, match=r"; --global-batch-size 32 or 64 works\.$"):
        check_accumulation("grouped", stages=4, accumulation=6, samples_each=4)


def test_1f1b_warns_with_the_idle_share() -> None:
    assert check_accumulation("1f1b", stages=3, accumulation=10) == (
        "--gradient-accumulation-count 10 is not a multiple of the 3 stages: the 1f1b schedule leaves "
        "devices idle for 16.7 % of the time, but 14.3 % with 12 (if all stages take equally long)."
    )


@pytest.mark.parametrize(
    ("name", "few", "enough"), [("gpipe", "50.0", "42.9"), ("zero-bubble", "30.8", "20.0")]
)
def test_fewer_micro_batches_than_stages_warn(name: str, few: str, enough: str) -> None:
    warning = check_accumulation(name, stages=4, accumulation=3)
    assert warning is not None
    assert f"is less than the 4 stages: the {name} schedule" in warning
    assert f"idle for {few} % of the time, but {enough} % with 4 (" in warning


@pytest.mark.parametrize(
    ("name", "stages", "accumulation"),
    [
        ("grouped", 4, 8),
        ("grouped", 1, 3),
        ("1f1b", 3, 12),
        ("1f1b", 1, 1),
        ("gpipe", 4, 5),
        ("zero-bubble", 4, 5),
        ("sequential", 4, 1),
    ],
)
def test_what_suits_is_silent(name: str, stages: int, accumulation: int) -> None:
    assert check_accumulation(name, stages=stages, accumulation=accumulation) is None
