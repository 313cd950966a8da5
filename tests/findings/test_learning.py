"""A loss that does not fall, and a training that ends too early."""

from typing import Any

import pytest

from drivetrain.findings.learning import loss_stays, still_learning, too_short
from tests.findings.cases import a_recipe, a_record

CHOSEN = frozenset(["augment", "num_epochs"])
FLAT = (2.31, 2.30)
RISING = (0.3, 0.4, 0.5, 0.55, 0.65)


def test_a_loss_that_falls_needs_no_word() -> None:
    assert loss_stays(a_record()) is None
    assert loss_stays(a_record(losses=(2.3, 2.1))) is None


@pytest.mark.parametrize(
    ("optimizer", "rate", "said"),
    [
        ("sgd", 0.1, "the learning rate of 0.1 may be too high; try --learning-rate 0.01."),
        ("sgd", 0.0001, "the learning rate of 0.0001 may be too low; try --learning-rate 0.001."),
        ("adamw", 0.01, "the learning rate of 0.01 may be too high; try --learning-rate 0.001."),
        ("adam", 1e-6, "the learning rate of 1e-06 may be too low; try --learning-rate 1e-05."),
    ],
)
def test_a_flat_loss_asks_for_another_rate(optimizer: str, rate: float, said: str) -> None:
    found = loss_stays(a_record(losses=FLAT, rate=rate, recipe=a_recipe(optimizer=optimizer)))
    assert found == f"The training loss did not fall (2.31 to 2.3): {said}"


def test_a_loss_that_rises_did_not_fall() -> None:
    assert loss_stays(a_record(losses=(2.3, 7.0))) is not None


def test_few_updates_ask_for_more_and_very_few_say_nothing() -> None:
    few = loss_stays(a_record(losses=FLAT, updates=60, recipe=a_recipe(num_epochs=3)))
    assert few == "The training loss did not fall (2.31 to 2.3): 60 updates are few; try --num-epochs 10."
    assert loss_stays(a_record(losses=FLAT, updates=10)) is None


def test_trained_weights_may_start_low() -> None:
    assert loss_stays(a_record(losses=(0.1, 0.1), recipe=a_recipe(init_from="runs/first"))) is None
    assert loss_stays(a_record(losses=(0.1, 0.1))) is not None


def test_steps_have_no_rate_to_type() -> None:
    stepped = a_recipe(lr_schedule="stepped", lr_schedule_params={"boundaries": [1], "values": [0.1, 0.01]})
    found = loss_stays(a_record(losses=FLAT, recipe=stepped))
    assert found is not None
    assert found.endswith("try other values in --lr-schedule-params.")


def test_a_score_that_still_rises_asks_for_a_longer_training() -> None:
    found = still_learning(a_record(validations=RISING, recipe=a_recipe(num_epochs=10)))
    assert found == (
        "The validation accuracy still rose at the end (0.55 to 0.65 in the last 40 of 200 updates): a "
        "longer training helps; try --num-epochs 20."
    )


@pytest.mark.parametrize(
    ("budget", "option"),
    [
        (None, "--budget best"),
        ("quick", "--budget normal"),
        ("best", "--num-epochs 30"),
        ("10m", "--budget 20m"),
        ("45", "--budget 90"),
    ],
)
def test_rules_are_given_more_time(budget: str | None, option: str) -> None:
    recipe = a_recipe(budget=budget)
    found = still_learning(a_record(validations=RISING, recipe=recipe, chosen=CHOSEN))
    assert found is not None
    assert found.endswith(f"try {option}.")


def test_a_limit_of_updates_is_what_is_raised() -> None:
    limited = a_recipe(max_updates=200)
    found = still_learning(a_record(validations=RISING, recipe=limited, chosen=frozenset(["augment"])))
    assert found is not None
    assert found.endswith("try --max-updates 400.")


@pytest.mark.parametrize(
    "scores",
    [
        (0.5, 0.8, 0.92, 0.95, 0.96),
        (0.3, 0.4, 0.5, 0.64, 0.65),
        (0.3, 0.64, 0.5, 0.5, 0.65),
        (0.65,),
        (),
    ],
    ids=["hardly any error left", "flat at the end", "only back at its best", "one validation", "none"],
)
def test_other_courses_need_no_longer_training(scores: tuple[float, ...]) -> None:
    assert still_learning(a_record(validations=scores)) is None


def test_a_training_that_ended_by_itself_was_long_enough() -> None:
    assert still_learning(a_record(validations=RISING, ended_by="--stop-at accuracy=0.6")) is None


def test_a_training_loss_that_rises_at_the_end_gains_nothing_by_more() -> None:
    assert still_learning(a_record(validations=RISING, losses=(2.0, 0.5, 0.6))) is None


@pytest.mark.parametrize(
    ("updates", "options", "option"),
    [
        (4, {"num_epochs": 2}, "--num-epochs 100"),
        (99, {"num_epochs": 9}, "--num-epochs 19"),
        (8, {"max_updates": 8}, "--max-updates 200"),
        (10, {"budget": "30"}, "--budget 10m"),
        (80, {"budget": "20"}, "--budget 50"),
    ],
)
def test_few_updates_are_made_enough(updates: int, options: dict[str, Any], option: str) -> None:
    chosen = CHOSEN if "budget" in options else frozenset[str]()
    record = a_record(
        task="segmentation", validations=(0.45,), updates=updates, recipe=a_recipe(**options), chosen=chosen
    )
    assert too_short(record) == f"{updates} updates are few (validation dice 0.45); try {option}."


def test_a_short_training_that_is_good_or_was_ended_is_not_too_short() -> None:
    assert too_short(a_record(validations=(0.45,), updates=99)) is not None
    assert too_short(a_record(validations=(0.95,), updates=99)) is None
    assert too_short(a_record(validations=(0.45,), updates=100)) is None
    assert too_short(a_record(validations=(), updates=99)) is None
    assert too_short(a_record(validations=(0.45,), updates=99, ended_by="--stop-at accuracy=0.4")) is None
