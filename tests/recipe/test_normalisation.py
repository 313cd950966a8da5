"""The values that --normalisation accepts."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import read_recipe_yaml, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.normalisation import ChannelValues
from drivetrain.recipe.schema import Recipe


def _resolved(value: Any) -> Any:
    return resolve_recipe(overrides={"dataset": "digits", "normalisation": value}).recipe.normalisation


@pytest.mark.parametrize("word", ["auto", "unit", "standardise", "imagenet", "symmetric", "UNIT"])
def test_words(word: str) -> None:
    assert _resolved(word) == word.lower()


@pytest.mark.parametrize(
    "value", ["{mean: [0.5, 0.4], std: [0.2, 0.1]}", {"mean": [0.5, 0.4], "std": [0.2, 0.1]}]
)
def test_numbers_per_channel_as_yaml_or_mapping(value: Any) -> None:
    assert _resolved(value) == ChannelValues(mean=(0.5, 0.4), std=(0.2, 0.1))


def test_one_number_is_a_list_of_one() -> None:
    assert _resolved("{mean: 0.5, std: 0.25}") == ChannelValues(mean=(0.5,), std=(0.25,))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("imagnet", "it must be one of auto, unit"),
        ("{mean: [0.5]}", "it must be one of auto"),
        ("{mean: [0.5], std: [0.1], sdt: [1]}", "it must be one of auto"),
        ("{mean: [0.5, 0.5], std: [0.1]}", "as many numbers in mean as in std"),
        ("{mean: [0.5], std: [0]}", "more than 0"),
        ("{mean: [", "it must be one of auto"),
        (3, "it must be one of auto"),
    ],
)
def test_anything_else_is_refused_with_what_works(value: Any, sentence: str) -> None:
    with pytest.raises(
        BadInputError, match=rf"--normalisation is .*{sentence}.*--normalisation imagenet works"
    ):
        _resolved(value)


def test_a_run_directory_gives_the_values_back(tmp_path: Any) -> None:
    values = ChannelValues(mean=(0.5, 0.1), std=(0.2, 0.3), of="timm/resnet18")
    (tmp_path / "recipe.yaml").write_text(recipe_to_yaml(Recipe(normalisation=values)))
    assert Recipe(**read_recipe_yaml(tmp_path / "recipe.yaml")).normalisation == values
