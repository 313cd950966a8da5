"""The rules between optimiser, schedule, rate and their keys."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

STEPS = {"boundaries": [2, 5], "values": [0.1, 0.2, 0.3]}

REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"optimizer": "adam", "optimizer_params": {"momentum": 0.9}},
        "does not belong to --optimizer adam, whose keys are beta1, beta2, epsilon, bare_epsilon; "
        "leave it out, or use --optimizer sgd.",
    ),
    (
        {"optimizer_params": {"beta1": 0.9}},
        "beta1 in --optimizer-params '{\"beta1\": 0.9}' does not belong to",
    ),
    ({"optimizer": "adam", "weight_decay": 0.1}, "use --optimizer adamw, or --l2-regularization 0.1."),
    ({"lr_schedule_params": {"power": 2}}, "does not belong to --lr-schedule cosine"),
    ({"lr_schedule": "const", "lr_schedule_params": {"epochs_to_total_decay": 2}}, "--lr-schedule const"),
    ({"lr_schedule": "stepped", "lr_schedule_params": {"initial_learning_rate": 2}}, "--lr-schedule stepped"),
    ({"lr_schedule": "stepped"}, "needs boundaries and values"),
    ({"lr_schedule": "stepped", "lr_schedule_params": {"values": [1]}}, "needs boundaries and values"),
    (
        {"lr_schedule": "stepped", "lr_schedule_params": STEPS | {"values": [1, 2]}},
        "2 values for 2 boundaries",
    ),
    ({"lr_schedule": "stepped", "lr_schedule_params": STEPS | {"boundaries": [5, 2]}}, "must be ascending"),
    ({"lr_schedule": "stepped", "lr_schedule_params": STEPS | {"boundaries": [2, 2]}}, "must be ascending"),
    ({"lr_schedule": "stepped", "lr_schedule_params": STEPS | {"boundaries": [0, 2]}}, "must be ascending"),
    (
        {"lr_schedule": "stepped", "lr_schedule_params": STEPS | {"values": [1, -1, 1]}},
        "at least 0, not all 0",
    ),
    (
        {"lr_schedule": "stepped", "lr_schedule_params": STEPS | {"values": [0, 0, 0]}},
        "at least 0, not all 0",
    ),
    (
        {"learning_rate": 0.1, "lr_schedule_params": {"initial_learning_rate": 0.1}},
        "--learning-rate 0.1 and initial_learning_rate in --lr-schedule-params",
    ),
]

ALLOWED: list[dict[str, Any]] = [
    {"optimizer": "adam"},
    {"optimizer": "adam", "l2_regularization": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1, "optimizer_params": {"beta2": 0.9}},
    {"weight_decay": 0.1},
    {"lr_schedule": "stepped", "lr_schedule_params": STEPS},
    {"lr_schedule": "stepped", "lr_schedule_params": STEPS, "learning_rate": 0.5},
    {"lr_schedule": "exponential", "lr_schedule_params": {"initial_learning_rate": 1, "decay_rate": 0.5}},
    {"lr_schedule": "polynomial", "lr_schedule_params": {"power": 2, "epochs_to_total_decay": 3}},
    {"lr_warmup_params": {"warmup_epochs": 1}},
    {"lr_schedule": "const", "lr_staircase": True, "lr_warmup_params": {"warmup_epochs": 1}},
]


@pytest.mark.parametrize(("values", "part"), REFUSED)
def test_refused(values: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        check_recipe(Recipe.model_validate(values), {})
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", ALLOWED)
def test_allowed(values: dict[str, Any]) -> None:
    assert check_recipe(Recipe.model_validate(values), {}) == []
    assert resolve_recipe(overrides=values).warnings == ()


def test_warnings() -> None:
    staircase = resolve_recipe(overrides={"lr_schedule": "const", "lr_staircase": True})
    assert staircase.warnings == (
        "--lr-staircase True has no effect with --lr-schedule const and no warm-up.",
    )
    (warning,) = resolve_recipe(
        overrides={"num_epochs": 2, "lr_warmup_params": "{warmup_epochs: 2}"}
    ).warnings
    assert warning.endswith("lasts as long as --num-epochs 2: the learning rate will not reach its peak.")


def test_trained_weights_at_the_rate_from_scratch_are_warned_of() -> None:
    given = {"dataset": "digits", "init_from": "w.safetensors"}
    (warning,) = resolve_recipe(overrides=given).warnings
    assert warning == (
        "--init-from w.safetensors starts from trained weights, but the learning rate is the default for "
        "training from scratch, at which they are soon forgotten; --config fine_tune has settings that suit, "
        "or --learning-rate 0.01 sets a lower rate."
    )
    for chosen in ({"learning_rate": 0.1}, {"optimizer": "adam"}):
        assert resolve_recipe(overrides={**given, **chosen}).warnings == ()
    assert resolve_recipe(config="fine_tune", overrides=given).warnings == ()
    (warning,) = resolve_recipe(overrides={"dataset": "digits", "pretrained": "w.pth"}).warnings
    assert warning.startswith("--pretrained w.pth starts from trained weights")


def test_a_backbone_that_never_begins_is_warned_of() -> None:
    (warning,) = resolve_recipe(overrides={"head_first_epochs": 3, "num_epochs": 3}).warnings
    assert warning == (
        "--head-first-epochs 3 lasts as long as --num-epochs 3: only the head will be trained; "
        "--freeze backbone does the same faster."
    )
    assert resolve_recipe(overrides={"head_first_epochs": 2, "num_epochs": 3}).warnings == ()
