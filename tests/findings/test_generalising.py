"""Training far better than validation, guessing, and images that are in both sets."""

from typing import Any

import pytest

from drivetrain.findings.generalising import guesses_only, known_images, learned_by_heart
from tests.findings.cases import a_recipe, a_record, labelled, masked

WORSE: dict[str, Any] = {"train": 0.99, "validations": (0.5, 0.65, 0.68, 0.7, 0.7)}
DECAYED = {"augment": True, "weight_decay": 0.0005}


@pytest.mark.parametrize(
    ("train", "validation"), [(1.0, 0.96), (0.9, 0.85), (0.6, 0.45), (0.5, 0.7)], ids=str
)
def test_healthy_distances_need_no_word(train: float, validation: float) -> None:
    assert learned_by_heart(a_record(train=train, validations=(validation,))) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the training images are learned by heart; try --augment True."),
        ({"augment": True}, "the training images are learned by heart; try --weight-decay 0.0005."),
        (
            {"augment": True, "optimizer": "adamw", "weight_decay": 0.001},
            "the training images are learned by heart; try --weight-decay 0.05.",
        ),
        (
            {"augment": True, "optimizer": "adam"},
            "the training images are learned by heart; try --l2-regularization 0.0001.",
        ),
        (
            DECAYED,
            "more images would help most; otherwise start from trained weights with --pretrained.",
        ),
        (
            {**DECAYED, "init_from": "runs/first"},
            "more images would help most; otherwise train fewer layers with --freeze backbone.",
        ),
    ],
)
def test_the_first_remedy_that_is_not_in_use_is_named(options: dict[str, Any], said: str) -> None:
    found = learned_by_heart(a_record(**WORSE, recipe=a_recipe(**options)))
    assert found == f"Training is far better than validation (accuracy 0.99 and 0.70): {said}"


def test_an_early_best_asks_for_patience() -> None:
    early = a_record(train=0.99, validations=(0.6, 0.74, 0.7, 0.68, 0.67), recipe=a_recipe(**DECAYED))
    found = learned_by_heart(early)
    assert found is not None
    assert found.endswith("the best validation was at update 80 already; try --patience 5.")
    patient = a_recipe(**DECAYED, patience=8)
    assert "--patience" not in str(
        learned_by_heart(a_record(train=0.99, validations=(0.6, 0.74, 0.7, 0.68, 0.67), recipe=patient))
    )


def test_images_that_are_not_bytes_and_tables_are_not_augmented() -> None:
    for dtype in ("float32", None):
        found = learned_by_heart(a_record(**WORSE, image_dtype=dtype))
        assert found is not None
        assert "--augment" not in found


def test_an_average_that_remembers_the_start_is_the_first_suspect() -> None:
    found = learned_by_heart(a_record(**WORSE, recipe=a_recipe(ema=0.9999)))
    assert found is not None
    assert found.endswith(
        "the average of --ema 0.9999 still holds weights from the start after 200 updates; try --ema 0.95."
    )
    assert "--augment" in str(learned_by_heart(a_record(**WORSE, recipe=a_recipe(ema=0.95))))


@pytest.mark.parametrize(
    ("updates", "options", "said"),
    [
        (
            20,
            {"num_epochs": 2},
            "20 updates are few, and running statistics of batch norm lag behind; try --num-epochs 20, or "
            "--bn-momentum 0.9.",
        ),
        (
            150,
            {"num_epochs": 2},
            "running statistics of batch norm lag behind in 150 updates; try --num-epochs 4, or "
            "--bn-momentum 0.9.",
        ),
        (
            200,
            {"num_epochs": 2, "bn_momentum": 0.99},
            "running statistics of batch norm lag behind in 200 updates; try --num-epochs 4, or "
            "--bn-momentum 0.9.",
        ),
        (
            20,
            {"num_epochs": 2, "bn_momentum": 0.9},
            "20 updates are few, and running statistics of batch norm lag behind; try --num-epochs 20.",
        ),
        (150, {"bn_momentum": 0.9}, "the training images are learned by heart; try --augment True."),
        (200, {}, "the training images are learned by heart; try --augment True."),
    ],
)
def test_nothing_is_learned_by_heart_before_statistics_settle(
    updates: int, options: dict[str, Any], said: str
) -> None:
    record = a_record(train=1.0, validations=(0.5,), updates=updates, recipe=a_recipe(**options))
    found = learned_by_heart(record)
    assert found == f"Training is far better than validation (accuracy 1.00 and 0.50): {said}"


def test_a_handful_of_validation_samples_prove_nothing() -> None:
    record = a_record(**WORSE)
    assert learned_by_heart(record) is not None
    for event in record.validations:
        assert isinstance(event, dict)
        event["validation_samples"] = 6
    assert learned_by_heart(record) is None


def test_the_same_answer_for_all_is_guessing_however_common_it_is() -> None:
    labels = [0] * 90 + [1] * 10
    record = a_record(train=0.9, validations=(0.9,), recipe=a_recipe(num_epochs=4))
    said = guesses_only(record, labelled(labels, [0] * 100))
    assert said == (
        "Validation images are predicted no better than by guessing (50% right as a mean over 2 classes): "
        "the network has hardly learned; try --num-epochs 8."
    )
    useful = [0] * 88 + [1] * 2 + [1] * 8 + [0] * 2
    assert guesses_only(a_record(), labelled(labels, useful)) is None


def test_rules_send_people_to_their_data() -> None:
    said = guesses_only(a_record(chosen=frozenset(["augment"])), labelled([0] * 50 + [1] * 50, [0] * 100))
    assert said is not None
    assert said.endswith("`drivetrain data look` shows them together.")


def test_a_short_training_is_made_longer_first() -> None:
    record = a_record(chosen=frozenset(["max_updates"]), updates=7, recipe=a_recipe(budget="4m"))
    said = guesses_only(record, labelled([0] * 50 + [1] * 50, [0] * 100))
    assert said is not None
    assert said.endswith("7 updates are few; try --budget 115m.")


def test_a_slow_average_may_be_why_only_guesses_are_measured() -> None:
    said = guesses_only(a_record(recipe=a_recipe(ema=0.9999)), labelled([0] * 50 + [1] * 50, [0] * 100))
    assert said is not None
    assert "try --ema 0.95" in said


def test_good_training_and_guessed_validation_are_a_matter_of_running_statistics() -> None:
    guessed = labelled([0] * 50 + [1] * 50, [0] * 100)
    short = guesses_only(a_record(train=0.99, validations=(0.5,)), guessed)
    assert short is not None
    assert short.endswith(
        "but training images well: running statistics of batch norm lag behind in 200 updates; try "
        "--num-epochs 30, or --bn-momentum 0.9."
    )
    assert guesses_only(a_record(train=0.99, validations=(0.5,), updates=2000), guessed) is None


def test_few_samples_and_a_single_class_are_not_judged() -> None:
    assert guesses_only(a_record(), labelled([0, 1] * 5, [0] * 10)) is None
    assert guesses_only(a_record(), labelled([0] * 100, [0] * 100)) is None


def test_masks_of_one_class_are_guesses_too() -> None:
    record = a_record(task="segmentation", validations=())
    said = guesses_only(record, masked([[[95, 0], [5, 0]]] * 6))
    assert said is not None
    assert said.startswith("Validation pixels are predicted no better than by guessing (50% right")
    assert guesses_only(record, masked([[[93, 2], [3, 2]]] * 6)) is None


def test_copies_in_both_sets_are_named() -> None:
    said = known_images(a_record(duplicates=(3, ("train/a.png", "val/b.png"))))
    assert said is not None
    assert said.startswith("3 validation images are in the training set too")
    assert "(val/b.png equals train/a.png)" in said
    assert known_images(a_record()) is None
