"""Which rates `--layer-decay`, `--backbone-rate` and `--head-first-epochs` give to which parameters."""

from fractions import Fraction
from typing import Any

import pytest
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.freeze import freeze_parameters
from drivetrain.optim.block_rates import block_factors, block_rates, check_block_rates
from drivetrain.optim.part_rates import PartRate
from drivetrain.recipe.schema import Recipe


def _rates(**options: Any) -> dict[str, PartRate]:
    model = create_model("cifar_resnet8", image_size=8)
    return block_rates(Recipe(**options), model, updates_per_epoch=Fraction(9, 2))


def test_all_train_alike_by_default() -> None:
    assert _rates() == {}
    assert block_factors(Recipe(), create_model("cifar_resnet8", image_size=8)) == {}


def test_the_rate_of_a_block_is_that_of_the_next_times_the_decay() -> None:
    rates = _rates(layer_decay=0.5)
    assert rates["conv4_block1_layer2_bn.bias"] == PartRate(factor=0.5)
    assert rates["conv3_block1_layer2_conv.weight"] == PartRate(factor=0.25)
    assert rates["conv1_bn.weight"] == PartRate(factor=0.0625)
    assert "fc_layer.weight" not in rates


def test_the_backbone_has_a_rate_of_its_own_besides() -> None:
    assert set(_rates(backbone_rate=0.1).values()) == {PartRate(factor=0.1)}
    both = _rates(backbone_rate=0.1, layer_decay=0.5)
    assert both["conv4_block1_layer2_conv.weight"] == PartRate(factor=0.05)
    model = create_model("cifar_resnet8", image_size=8)
    assert block_factors(Recipe(backbone_rate=0.1, layer_decay=0.5), model) == {
        "conv1_conv": 0.00625,
        "conv2_block1": 0.0125,
        "conv3_block1": 0.025,
        "conv4_block1": 0.05,
        "fc_layer": 1.0,
    }


def test_the_backbone_waits_whole_updates() -> None:
    rates = _rates(head_first_epochs=3)
    assert set(rates.values()) == {PartRate(first=13)}
    assert "fc_layer.bias" not in rates


@pytest.mark.parametrize(
    ("freeze", "options", "part"),
    [
        (
            ["backbone"],
            {"layer_decay": 0.5, "freeze": ("backbone",)},
            "--layer-decay 0.5 has no effect: only the head of the model is trained (fc_layer); use "
            "--layer-decay 1, or freeze less.",
        ),
        (
            ["fc_layer"],
            {"head_first_epochs": 1},
            "--head-first-epochs 1 leaves nothing to train at first, because the head of the model is "
            "frozen; leave fc_layer out of --freeze.",
        ),
    ],
)
def test_refused(freeze: list[str], options: dict[str, Any], part: str) -> None:
    model = create_model("cifar_resnet8", image_size=8)
    freeze_parameters(model, freeze)
    with pytest.raises(BadInputError) as caught:
        check_block_rates(Recipe(**options), model)
    assert part in str(caught.value)


def test_a_model_of_one_layer_has_no_backbone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(
        BadInputError, match=r"--backbone-rate 0.1 has no effect: .* \(1\); use --backbone-rate 1\."
    ):
        check_block_rates(Recipe(backbone_rate=0.1), model)


class _HeadWithNorm(nn.Module):
    """As ConvNeXt's: the last block holds a norm of the backbone and the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3)
        self.head = nn.Sequential()
        self.head.norm = nn.LayerNorm(4)
        self.head.fc = nn.Linear(4, 2)


def test_the_factors_that_are_shown_are_those_that_train() -> None:
    model, recipe = _HeadWithNorm(), Recipe(backbone_rate=0.1)
    rates = block_rates(recipe, model, updates_per_epoch=Fraction(1))
    assert {name for name, _ in model.named_parameters()} - set(rates) == {"head.fc.weight", "head.fc.bias"}
    shown = block_factors(recipe, model)
    assert shown["head.fc"] == 1.0
    assert [factor for name, factor in shown.items() if name != "head.fc"] == [0.1] * (len(shown) - 1)
