"""The schema describes itself well enough for help pages and messages."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain.recipe.fields import example_text
from drivetrain.recipe.merging import Setting, layer_of
from drivetrain.recipe.params import OPTIMIZER_KEYS, SCHEDULE_KEYS
from drivetrain.recipe.schema import (
    GROUPS,
    LrScheduleParams,
    LrWarmupParams,
    OptimizerParams,
    Recipe,
    field_note,
)

FIELDS = list(Recipe.model_fields)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_help_and_a_group(field: str) -> None:
    assert Recipe.model_fields[field].description
    assert field_note(field).group in GROUPS


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_a_value_that_works(field: str) -> None:
    text = example_text(field).strip("'")
    assert text != "None"
    layer = layer_of([Setting(field, text, "command line")])
    assert getattr(Recipe.model_validate(dict(layer.values)), field) is not None


@pytest.mark.parametrize("params", [OptimizerParams, LrScheduleParams, LrWarmupParams])
def test_keys_of_typed_mappings_have_help_and_examples(params: type[Any]) -> None:
    for info in params.model_fields.values():
        assert info.description
        assert info.examples or info.default is not None


def test_every_key_belongs_to_a_choice() -> None:
    assert {key for keys in OPTIMIZER_KEYS.values() for key in keys} == set(OptimizerParams.model_fields)
    assert {key for keys in SCHEDULE_KEYS.values() for key in keys} == set(LrScheduleParams.model_fields)


def test_momentum_of_the_demonstration_is_of_sgd_alone() -> None:
    assert Recipe().optimizer_params == OptimizerParams(momentum=0.9)
    assert Recipe(optimizer="sgd").optimizer_params.momentum == 0.9
    assert Recipe(optimizer="adam").optimizer_params == OptimizerParams()
    given = OptimizerParams(beta1=0.5)
    assert Recipe(optimizer="adam", optimizer_params=given).optimizer_params == given


def test_layout_may_change_and_the_micro_batch_may_not() -> None:
    for field in (
        "replicas",
        "gradient_accumulation_count",
        "global_batch_size",
        "num_workers",
        "num_epochs",
    ):
        assert field_note(field).may_change, field
    for field in ("micro_batch_size", "seed", "learning_rate", "model", "dataset"):
        assert not field_note(field).may_change, field


@pytest.mark.parametrize(("value", "text"), [(2, "2"), (0.5, "0.5"), ("1/3", "1/3"), (0, "0")])
def test_logs_per_epoch_takes_numbers(value: Any, text: str) -> None:
    assert Recipe(logs_per_epoch=value).logs_per_epoch == text


def test_choices_ignore_case_and_paths_become_text(tmp_path: Path) -> None:
    recipe = Recipe.model_validate({"optimizer": "AdamW", "lr_schedule": "Cosine", "output_dir": tmp_path})
    assert (recipe.optimizer, recipe.lr_schedule, recipe.output_dir) == ("adamw", "cosine", str(tmp_path))


def test_model_params_are_plain_data() -> None:
    assert Recipe(model_params={"sizes": (1, 2)}).model_params == {"sizes": [1, 2]}
    with pytest.raises(ValidationError, match="plain data"):
        Recipe(model_params={"layer": object()})
    with pytest.raises(ValidationError, match="plain data"):
        Recipe(model_params={"table": {1: 2}})


@pytest.mark.parametrize("values", [{"micro_batch_sise": 2}, {"micro_batch_size": 0}, {"output_dir": ""}])
def test_python_callers_get_pydantic_errors(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Recipe.model_validate(values)


def test_a_recipe_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Recipe().seed = 1
