"""A recipe written to a file is the same recipe when read back."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.named import packaged_names
from drivetrain.recipe.params import LrScheduleParams, LrWarmupParams, OptimizerParams
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.written import read_recipe_yaml, recipe_to_yaml
from drivetrain.recipe.yaml_text import YamlDocument

RECIPES = [
    Recipe(),
    Recipe(optimizer="adam", weight_decay=0.0, learning_rate=1e-5),
    Recipe(optimizer="adamw", optimizer_params=OptimizerParams(beta1=0.1, epsilon=1e-12), seed=2**63 - 1),
    Recipe(
        lr_schedule="stepped",
        lr_schedule_params=LrScheduleParams(boundaries=(1.0, 2.5), values=(0.3, 0.1 + 0.2, 1e-300)),
        lr_warmup_params=LrWarmupParams(warmup_mode="mask", warmup_epochs=0.5),
    ),
    Recipe(
        model_params={"a": "1e-4", "b": [1, 2.0, None, True, "yes"], "c": {"d": "010", "<<": "x"}},
        output_dir="2024-01-02",
        data_dir=" a: 'b' \u00fc \u2028 # c",
        log_every=5,
        logs_per_epoch="1",
        checkpoints=False,
    ),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_round_trip_is_exact(tmp_path: Path, recipe: Recipe) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_to_yaml(recipe), encoding="utf-8")
    values = read_recipe_yaml(path)
    assert list(values) == list(Recipe.model_fields)
    assert Recipe.model_validate(values) == recipe
    assert recipe_to_yaml(Recipe.model_validate(values)) == recipe_to_yaml(recipe)
    assert resolve_recipe(base=values).recipe == recipe
    assert resolve_recipe(config_path=path).recipe == recipe


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(folder=TEXTS, model_params=st.dictionaries(TEXTS, PLAIN, max_size=3), rate=st.floats(0, 1e300))
def test_any_text_and_number_survives(folder: str, model_params: dict[str, Any], rate: float) -> None:
    recipe = Recipe(output_dir=folder, model_params=model_params, learning_rate=rate)
    document = YamlDocument(recipe_to_yaml(recipe), source="recipe.yaml")
    assert document.root is not None
    assert Recipe.model_validate(document.value(document.root)) == recipe


def test_a_changed_value_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_to_yaml(Recipe()).replace("seed: 0", "seed: 1"))
    assert Recipe.model_validate(read_recipe_yaml(path)) == Recipe(seed=1) != Recipe()


@pytest.mark.parametrize("name", packaged_names())
def test_other_yaml_readers_understand_it(name: str) -> None:
    recipe = resolve_recipe(config=name).recipe
    assert Recipe.model_validate(yaml.safe_load(recipe_to_yaml(recipe))) == recipe


def test_a_file_that_is_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("seed: 1\nfoo: 2\n")
    with pytest.raises(BadInputError, match=":2: foo is not an option"):
        read_recipe_yaml(path)
    path.write_text("[]")
    with pytest.raises(BadInputError, match="holds no recipe"):
        read_recipe_yaml(path)
