"""Every rule between fields: the recipe that breaks it is refused, its neighbour is not."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": "foo"}, "--model foo"),
    ({"dataset": "foo"}, "--dataset foo"),
    (
        {"gradient_accumulation_count": 10, "global_batch_size": 10},
        "--gradient-accumulation-count 10 and --global-",
    ),
    ({"log_every": 5, "steps_per_execution": 5}, "--log-every 5 and --steps-per-execution 5 cannot both"),
    ({"log_every": 5, "logs_per_epoch": "2"}, "--log-every 5 and --logs-per-epoch 2 cannot both"),
    ({"steps_per_execution": 5, "logs_per_epoch": "1/2"}, "--steps-per-execution 5 and --logs-per-epoch 1/2"),
    ({"steps_per_execution": 5, "gradient_accumulation_count": 2}, "--steps-per-execution 4 works"),
    ({"steps_per_execution": 1, "gradient_accumulation_count": 3}, "--steps-per-execution 3 works"),
    ({"logs_per_epoch": "-1"}, "--logs-per-epoch should be non-negative (>=0), it is -1"),
    ({"logs_per_epoch": "-1/3"}, "--logs-per-epoch should be non-negative"),
    ({"logs_per_epoch": "often"}, "--logs-per-epoch is often, it must be a number or a fraction"),
    ({"logs_per_epoch": "1/0"}, "--logs-per-epoch is 1/0, it must be a number or a fraction"),
    ({"logs_per_epoch": "nan"}, "it must be a number or a fraction"),
    ({"logs_per_epoch": "1e999999999"}, "it must be a number or a fraction"),
    ({"logs_per_epoch": ""}, "it must be a number or a fraction"),
    ({"eight_bit_transfer": True}, "add --accelerator-side-preprocess True"),
    ({"eight_bit_transfer": True, "data_placement": "resident"}, "add --accelerator-side-preprocess True"),
    ({"eight_bit_transfer": True, "accelerator_side_preprocess": False}, "--eight-bit-transfer True needs"),
    ({"accelerator_side_preprocess": False, "data_placement": "resident"}, "--data-placement stream works"),
    (
        {"num_workers": 0, "data_placement": "resident"},
        "--num-workers 0 has no effect with --data-placement resident",
    ),
    (
        {"rand_augment_magnitude": 5},
        "--rand-augment-magnitude 5.0 has no effect with --rand-augment 0",
    ),
    (
        {"random_resized_crop": 0.5, "augment": False},
        "--random-resized-crop 0.5 has no effect with --augment False",
    ),
    ({"training": False, "overwrite": True}, "leave out --overwrite"),
    ({"training": False, "validation": False}, "leave nothing to do"),
    (
        {"keep_checkpoints": 3, "checkpoints": False},
        "--keep-checkpoints 3 has no effect with --checkpoints False",
    ),
    (
        {"checkpoint_every": 3, "checkpoints": False},
        "--checkpoint-every 3 has no effect with --checkpoints False",
    ),
    ({"clean_dir": True, "checkpoints": False}, "--clean-dir True has no effect with --checkpoints False"),
    ({"evaluate_every": 3, "validation": False}, "--evaluate-every 3 has no effect with --validation False"),
    ({"limit_validation_samples": 3, "validation": False}, "--limit-validation-samples 3 has no effect"),
    (
        {"validation_micro_batch_size": 3, "validation": False},
        "--validation-micro-batch-size 3 has no effect",
    ),
]

ALLOWED: list[dict[str, Any]] = [
    {},
    {"rand_augment": 2, "rand_augment_magnitude": 5, "random_resized_crop": 0.5},
    {"rand_augment": 2, "augment": False},
    {"model": "my.package:net", "dataset": "my.package:data"},
    {"gradient_accumulation_count": 10},
    {"global_batch_size": 10},
    {"log_every": 5, "logs_per_epoch": "1"},
    {"steps_per_execution": 6, "gradient_accumulation_count": 2},
    {"logs_per_epoch": "0"},
    {"logs_per_epoch": "1/3", "num_epochs": 3},
    {"logs_per_epoch": "0.3333333333333333", "num_epochs": 3},
    {"logs_per_epoch": "5e-1", "num_epochs": 2},
    {"eight_bit_transfer": True, "accelerator_side_preprocess": True},
    {"accelerator_side_preprocess": False, "data_placement": "stream"},
    {"num_workers": 2, "data_placement": "stream"},
    {"training": False},
    {"checkpoints": False, "keep_checkpoints": 2},
    {"validation": False},
]


@pytest.mark.parametrize(("values", "part"), REFUSED)
def test_refused(values: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        check_recipe(Recipe(**values), {})
    message = str(caught.value)
    assert part in message
    assert "\n" not in message
    with pytest.raises(BadInputError):
        resolve_recipe(overrides=values)


@pytest.mark.parametrize("values", ALLOWED)
def test_allowed(values: dict[str, Any]) -> None:
    assert check_recipe(Recipe(**values), {}) == []


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"keep_checkpoints": "2", "checkpoints": "False"}, "--keep-checkpoints 2 has no effect"),
        ({"log_every": "5", "logs_per_epoch": "1"}, "--log-every 5 and --logs-per-epoch 1"),
    ],
)
def test_a_typed_default_counts_as_asked(values: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInputError, match=part):
        resolve_recipe(overrides=values)


@pytest.mark.parametrize(
    ("base", "overrides", "warning"),
    [
        (
            {"keep_checkpoints": 5},
            {"checkpoints": "False"},
            "--keep-checkpoints 5 has no effect with --checkpoints False.",
        ),
        (
            {"num_workers": 4},
            {"data_placement": "resident"},
            "--num-workers 4 has no effect with --data-placement resident.",
        ),
    ],
)
def test_what_the_command_line_overrules_is_a_warning(
    base: dict[str, Any], overrides: dict[str, Any], warning: str
) -> None:
    assert resolve_recipe(base=base, overrides=overrides).warnings == (warning,)
    with pytest.raises(BadInputError, match="has no effect"):
        resolve_recipe(base=overrides, overrides=base)


def test_messages_name_file_and_line() -> None:
    origins = {"global_batch_size": "x.yaml:3", "gradient_accumulation_count": "x.yaml:4"}
    with pytest.raises(BadInputError) as caught:
        check_recipe(Recipe(gradient_accumulation_count=2, global_batch_size=8), origins)
    assert "--gradient-accumulation-count 2 (x.yaml:4) and --global-batch-size 8 (x.yaml:3)" in str(
        caught.value
    )
