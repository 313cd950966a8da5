"""What a command means that names no recipe."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def test_a_bare_command_is_the_demonstration() -> None:
    bare, named = resolve_recipe(), resolve_recipe(config="synthetic_em")
    assert bare.recipe == named.recipe
    assert (bare.recipe.model, bare.recipe.dataset) == ("unet_same", "synthetic-em")
    assert resolve_recipe(overrides={"seed": 7}).recipe == named.recipe.model_copy(update={"seed": 7})


@pytest.mark.parametrize("asked", [{"dataset": "mask-folder"}, {"model": "unet_same"}])
def test_a_segmentations_part_alone_takes_the_rest_from_it(asked: dict[str, str]) -> None:
    recipe = resolve_recipe(overrides=asked).recipe
    named = resolve_recipe(config="synthetic_em").recipe
    assert recipe == named.model_copy(update=asked)


def test_another_model_does_not_take_over_its_parameters() -> None:
    recipe = resolve_recipe(overrides={"model": "unet", "dataset": "isbi2012"}).recipe
    assert (recipe.model_params, recipe.model_width) == ({}, None)
    assert recipe.learning_rate == resolve_recipe().recipe.learning_rate


@pytest.mark.parametrize(
    "asked", [{"dataset": "digits"}, {"model": "cifar_resnet8"}, {"dataset": "my.data:load"}]
)
def test_a_classifications_part_takes_the_plain_defaults(asked: dict[str, str]) -> None:
    assert resolve_recipe(overrides=asked).recipe == Recipe.model_validate(asked)


def test_a_named_recipe_and_a_file_stand_on_the_plain_defaults(tmp_path: Path) -> None:
    assert resolve_recipe(config="digits").recipe.micro_batch_size == Recipe().micro_batch_size
    (tmp_path / "mine.yaml").write_text("dataset: synthetic-em\nmodel: unet_same\n")
    recipe = resolve_recipe(config_path=tmp_path / "mine.yaml").recipe
    assert (recipe.micro_batch_size, recipe.model_width) == (Recipe().micro_batch_size, None)


def test_a_folder_of_data_needs_a_kind() -> None:
    """Else a person's images would lie there unused while generated ones are trained on."""
    with pytest.raises(
        BadInputError, match=r"^--data-dir mine .*--dataset mask-folder .*--dataset image-folder"
    ):
        resolve_recipe(overrides={"data_dir": "mine", "model_width": 8})
    assert resolve_recipe(config="digits", overrides={"data_dir": "mine"}).recipe.dataset == "digits"
