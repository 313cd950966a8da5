"""Facts about the recipe's fields, read off their types."""

import pytest

from drivetrain.recipe.fields import (
    choices_of,
    default_values,
    is_optional,
    kind_of,
    option_name,
    params_model,
    plain_values,
    written_value,
)
from drivetrain.recipe.params import LrScheduleParams, LrWarmupParams
from drivetrain.recipe.schema import Recipe

FIELDS = Recipe.model_fields


@pytest.mark.parametrize(
    ("field", "kind", "optional"),
    [
        ("shuffle", "switch", False),
        ("accelerator_side_preprocess", "switch", True),
        ("pretrained", "switch_or_path", False),
        ("micro_batch_size", "whole", False),
        ("global_batch_size", "whole", True),
        ("weight_decay", "number", False),
        ("device", "text", False),
        ("output_dir", "text", True),
        ("optimizer", "choice", False),
        ("model_params", "mapping", False),
        ("lr_warmup_params", "mapping", True),
    ],
)
def test_kinds(field: str, kind: str, optional: bool) -> None:
    assert kind_of(FIELDS[field]) == kind
    assert is_optional(FIELDS[field]) is optional


def test_lists_choices_and_typed_mappings() -> None:
    assert kind_of(LrScheduleParams.model_fields["values"]) == "several"
    assert choices_of(FIELDS["remainder"]) == ("trim", "pad", "carry")
    assert params_model(FIELDS["lr_warmup_params"]) is LrWarmupParams
    assert params_model(FIELDS["model_params"]) is None
    assert option_name("micro_batch_size") == "--micro-batch-size"


def test_plain_values_leave_open_keys_out() -> None:
    values = plain_values(Recipe(lr_schedule_params=LrScheduleParams(values=(1, 0.5))))
    assert list(values) == list(FIELDS)
    assert values["lr_schedule_params"] == {"values": [1.0, 0.5]}
    assert default_values()["optimizer_params"] == {"momentum": 0.9}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ({"a": [1]}, "'{\"a\": [1]}'"),
        (True, "True"),
        ("x", "x"),
        (None, "none"),
        ("a b", "'a b'"),
        ((1, "x"), "1 x"),
        (({"stage": 0, "compile": True},), '\'{"stage": 0, "compile": true}\''),
    ],
)
def test_written_values(value: object, text: str) -> None:
    assert written_value(value) == text
