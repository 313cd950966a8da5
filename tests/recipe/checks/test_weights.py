"""Weights from elsewhere: one place, which exists for the model."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import recipe_to_yaml, resolve_recipe
from drivetrain.recipe.schema import Recipe


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library counts as installed; nothing here imports it."""
    monkeypatch.setattr("drivetrain.catalogue.libraries.find_spec", lambda _: object())


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    "options",
    [
        {"model": "timm/resnet18", "pretrained": True},
        {"model": "timm/resnet18", "pretrained": "true"},
        {"model": "resnet18", "pretrained": "weights.pth"},
        {"model": "resnet18", "pretrained": Path("weights.pth")},
        {"model": "my.nets:make", "pretrained": "weights.pth"},
        {"model": "resnet18", "pretrained": False, "init_from": "runs/x"},
    ],
)
def test_what_is_accepted(options: dict[str, Any]) -> None:
    recipe = resolve_recipe(overrides={"dataset": "digits", **options}).recipe
    assert recipe.pretrained in (True, False, "weights.pth")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"model": "resnet50", "pretrained": True},
            "--pretrained needs a path with --model resnet50, of which no weights are published; "
            "--pretrained FILE works, or a library's model such as --model timm/resnet18.",
        ),
        (
            {"pretrained": True},
            "--pretrained alone needs a library's model, of which weights are published: add --model "
            "timm/resnet18 (`pip install -e .[timm]` installs it), or give a path, as in --pretrained FILE.",
        ),
        (
            {"model": "cifar_resnet8", "pretrained": True},
            "--pretrained needs a path with --model cifar_resnet8",
        ),
        (
            {"model": "my.nets:make", "pretrained": "on"},
            "--pretrained needs a path with --model my.nets:make",
        ),
        (
            {"model": "timm/resnet18", "pretrained": True, "init_from": "runs/x"},
            "--pretrained True and --init-from runs/x both set the weights to start from; leave one out.",
        ),
        ({"pretrained": 3.5}, "--pretrained is 3.5, it must be true, false or a path; --pretrained "),
        ({"pretrained": ""}, "it must be true, false or a path; --pretrained resnet50.safetensors works."),
    ],
)
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_recipe(overrides={"dataset": "digits", **options})
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [True, False, "runs/other"])
def test_yaml_keeps_what_was_given(value: bool | str) -> None:
    text = recipe_to_yaml(Recipe(model="timm/resnet18", pretrained=value))
    assert f"pretrained: {str(value).lower() if isinstance(value, bool) else value}" in text.splitlines()
