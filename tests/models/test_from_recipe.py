"""The model of a recipe: build, edit, take over weights, freeze, in this order."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.models.create import create_model
from drivetrain.models.from_recipe import outline_model, prepare_model, rebuild_model
from drivetrain.plan.training_plan import build_plan
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def spec(num_classes: int = 10) -> DataSpec:
    return DataSpec(
        channels=3,
        height=8,
        width=8,
        num_classes=num_classes,
        class_names=tuple(map(str, range(num_classes))),
        image_dtype="uint8",
    )


@pytest.fixture
def edits(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("edits_of_prepare")

    def rename_head(model: nn.Module) -> None:
        model.fc_layer = nn.Identity()
        model.add_module("new_head", nn.Linear(64, 4))

    module.rename_head = rename_head  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "edits_of_prepare", module)
    return "edits_of_prepare:rename_head"


def test_a_plain_recipe_builds_its_model() -> None:
    model, warnings = prepare_model(Recipe(seed=3), spec())
    assert warnings == []
    expected = create_model("cifar_resnet8", channels=3, image_size=8, num_classes=10, seed=3)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in model.state_dict().items())


def test_the_steps_see_what_the_ones_before_made(edits: str, tmp_path: Path) -> None:
    recipe = Recipe(model_edit=(edits,), freeze=("conv*",))
    weights = {**rebuild_model(Recipe(model_edit=(edits,), seed=5), spec()).state_dict()}
    weights["new_head.weight"] = torch.zeros(9, 64)
    weights["new_head.bias"] = torch.zeros(9)
    path = tmp_path / "weights.safetensors"
    save_file(weights, path)
    model, warnings = prepare_model(recipe.model_copy(update={"init_from": str(path)}), spec())
    assert warnings == [
        f"--init-from {path} has 9 classes, but the model has 4: new_head starts from newly "
        "initialised weights."
    ]
    assert torch.equal(model.get_parameter("conv1_conv.weight"), weights["conv1_conv.weight"])
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trainable == ["new_head.weight", "new_head.bias"]


def test_a_run_that_continues_leaves_the_other_weights_alone() -> None:
    recipe = Recipe(init_from="runs/gone", freeze=("conv1_*",))
    model, warnings = prepare_model(recipe, spec(), takes_weights=False)
    assert warnings == []
    assert not model.get_parameter("conv1_conv.weight").requires_grad
    with pytest.raises(BadInputError, match=r"--init-from runs/gone does not exist"):
        prepare_model(recipe, spec())


def test_a_model_made_in_python() -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Linear(8, 10))
    model, _ = prepare_model(Recipe(freeze=("1",)), spec(), model=own)
    assert model is own
    assert not own[1].weight.requires_grad
    with pytest.raises(BadInputError, match="edit your own model before you pass it"):
        prepare_model(Recipe(model_edit=("a:b",)), spec(), model=own)


def test_evaluation_needs_neither_weights_nor_freezing() -> None:
    recipe = Recipe(init_from="runs/gone", freeze=("conv1_*",))
    rebuilt = rebuild_model(recipe, spec())
    assert all(parameter.requires_grad for parameter in rebuilt.parameters())
    trained, _ = prepare_model(recipe, spec(), takes_weights=False)
    rebuilt.load_state_dict(trained.state_dict())


def test_a_plan_counts_what_trains() -> None:
    overrides = {"model": "cifar_resnet8", "freeze": ["conv*"], "init_from": "runs/gone"}
    totals = build_plan(resolve_recipe(overrides=overrides), lr_at=())["model"]
    assert totals["trainable"] == 64 * 10 + 10 < totals["parameters"]
    model = outline_model(Recipe(freeze=("fc_*",)), channels=1, image_size=8, num_classes=3)
    assert not model.get_parameter("fc_layer.bias").requires_grad


def test_a_width_reaches_the_factory() -> None:
    recipe = Recipe(model="unet_same", model_width=3, model_params={"depth": 2})
    for model in (
        rebuild_model(recipe, spec()),
        outline_model(recipe, channels=3, image_size=8, num_classes=10),
    ):
        assert model.get_parameter("encoder_block_0_conv_0.weight").shape == (3, 3, 3, 3)
        assert model.get_parameter("encoder_block_2_conv_0.weight").shape == (12, 6, 3, 3)
    in_params = Recipe(model="unet_same", model_params={"depth": 2, "width": 3})
    expected = rebuild_model(in_params, spec()).state_dict()
    built = rebuild_model(recipe, spec()).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in built.items())


def test_a_width_reaches_a_users_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("wide_models")

    def wide(*, width: int) -> nn.Module:
        return nn.Linear(width, 2)

    def fixed() -> nn.Module:
        return nn.Linear(1, 2)

    module.wide, module.fixed = wide, fixed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wide_models", module)
    model = rebuild_model(Recipe(model="wide_models:wide", model_width=5), spec())
    assert isinstance(model, nn.Linear)
    assert model.in_features == 5
    with pytest.raises(BadInputError, match="--model-width 5 has no effect on wide_models:fixed"):
        rebuild_model(Recipe(model="wide_models:fixed", model_width=5), spec())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "toy_model"}, "--model-width 4 has no effect on toy_model, .* unet_same"),
        ({"model": "unet_same", "model_params": {"width": 4}}, "--model-width 4 and width in --model-params"),
    ],
)
def test_a_width_that_says_nothing_is_refused(fields: dict[str, Any], message: str) -> None:
    recipe = Recipe(model_width=4, **fields)
    with pytest.raises(BadInputError, match=message):
        rebuild_model(recipe, replace(spec(), height=32, width=32))
    with pytest.raises(BadInputError, match=message):
        outline_model(recipe, channels=3, image_size=32, num_classes=10)


def test_an_unpadded_model_is_made_for_the_picture_or_its_tile() -> None:
    recipe = Recipe(model="unet", model_width=1)
    rebuild_model(recipe, replace(spec(), height=20, width=36))
    rebuild_model(recipe, replace(spec(), height=17, width=18, tile=20))
    rebuild_model(recipe.model_copy(update={"image_size": 20}), replace(spec(), height=17, width=18))
    for height, width in ((20, 37), (37, 20)):
        with pytest.raises(BadInputError, match=r"37 pixels do not fit unet; .* 36 and 52"):
            rebuild_model(recipe, replace(spec(), height=height, width=width))


@pytest.mark.parametrize("name", ["no_colon", "a:b:c", "a b:c", ":x"])
def test_the_form_of_an_edit_is_checked_with_the_recipe(name: str) -> None:
    with pytest.raises(BadInputError, match="does not have the form package"):
        resolve_recipe(overrides={"model_edit": [name]})


def test_one_word_is_a_list_in_yaml_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("freeze: conv1_*\nclass-weights: [1, 2.5]\n")
    recipe = resolve_recipe(config_path=path).recipe
    assert recipe.freeze == ("conv1_*",)
    assert recipe.class_weights == ("1", "2.5")
