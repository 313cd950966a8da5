"""The command on a page trains the same recipe."""

import argparse
import shlex
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.options import add_recipe_options, recipe_from_args
from drivetrain.recipe.fields import plain_values
from drivetrain.recipe.load import read_recipe_yaml, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.named import packaged_names
from drivetrain.recipe.schema import Recipe
from drivetrain.report.collect.command import reproducing_command

TYPED: list[dict[str, Any]] = [
    {"model": "unet_same", "stages": 2, "gradient_accumulation_count": 4},
    {"max_updates": 30, "seed": 4},
    {"optimizer": "adamw", "learning_rate": 1e-4},
    {"dataset": "image-folder", "data_dir": "a b's/<c>", "freeze": ["conv1", "bn*"]},
]


def _asked(command: str) -> Recipe:
    parser = argparse.ArgumentParser()
    add_recipe_options(parser)
    return recipe_from_args(parser.parse_args(shlex.split(command)[2:])).recipe


def _stored(recipe: Recipe, folder: Path) -> dict[str, Any]:
    (folder / "recipe.yaml").write_text(recipe_to_yaml(recipe))
    return read_recipe_yaml(folder / "recipe.yaml")


@pytest.mark.parametrize("name", packaged_names())
def test_a_named_recipe_comes_back(name: str, tmp_path: Path) -> None:
    recipe = resolve_recipe(config=name).recipe
    again = plain_values(_asked(reproducing_command(_stored(recipe, tmp_path))))
    # Without folds, their scheme has no effect, and the command line refuses it.
    ignored = {} if recipe.folds else {"fold_scheme": again["fold_scheme"]}
    assert again == plain_values(recipe) | ignored


@pytest.mark.parametrize("typed", TYPED)
def test_typed_options_come_back(typed: dict[str, Any], tmp_path: Path) -> None:
    recipe = resolve_recipe(overrides=typed).recipe
    assert plain_values(_asked(reproducing_command(_stored(recipe, tmp_path)))) == plain_values(recipe)


def test_another_seed_is_another_command(tmp_path: Path) -> None:
    commands = {
        reproducing_command(
            _stored(resolve_recipe(config="digits", overrides={"seed": seed}).recipe, tmp_path)
        )
        for seed in (1, 2)
    }
    assert commands == {f"drivetrain train --config digits --seed {seed}" for seed in (1, 2)}


def test_the_folder_and_the_rules_of_a_run_are_left_out(tmp_path: Path) -> None:
    recipe = resolve_recipe(config="digits", overrides={"output_dir": "runs/a", "folds": 5}).recipe
    assert reproducing_command(_stored(recipe, tmp_path), command="crossval") == (
        "drivetrain crossval --config digits --folds 5"
    )


def test_python_objects_have_no_command() -> None:
    assert "run the script" in reproducing_command({"dataset": "python:data", "model": "resnet18"})
    assert reproducing_command({}) == ""
