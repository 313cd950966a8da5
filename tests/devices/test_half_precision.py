import pytest
import torch

from drivetrain.devices import cpu_half as half_precision
from drivetrain.devices.cpu_half import prepare_half_precision
from drivetrain.recipe.schema import Recipe

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types made safe on a CPU that has bfloat16 alone."""
    kinds: list[str] = []
    monkeypatch.setattr(half_precision, "usable_half_names", lambda: ("bfloat16",))
    monkeypatch.setattr(half_precision, "make_half_safe", kinds.append)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    return kinds


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(precision="16.32", device="cpu"),
        Recipe(precision="16.32"),
        Recipe(device="cpu", stages=2, stage_options=({"stage": 1, "precision": "16.32"},)),
    ],
)
def test_half_precision_on_a_cpu_is_made_safe(recipe: Recipe, prepared: list[str]) -> None:
    prepare_half_precision(recipe)
    assert prepared == ["bfloat16"]


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(precision="32.32", device="cpu"),
        Recipe(precision="16.32", device="cuda:0"),
        Recipe(precision="16.32", half_type="float16", device="cpu"),
    ],
)
def test_nothing_else_is_touched(recipe: Recipe, prepared: list[str]) -> None:
    prepare_half_precision(recipe)
    assert prepared == []


def test_another_device_than_the_recipes(prepared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(precision="16.32", device="cuda")
    prepare_half_precision(recipe, device="cpu")
    assert prepared == ["bfloat16"]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    prepare_half_precision(recipe, device="auto")
    assert prepared == ["bfloat16"]
