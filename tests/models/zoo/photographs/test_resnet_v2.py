"""ResNets of the second version: counts as in Keras, sizes, features of the same weights, stages."""

import pytest
from torch import nn

from tests.models.zoo.known_counts import TOTALS_OF_KERAS
from tests.models.zoo.photographs.checks import (
    check_order,
    check_smallest,
    check_total,
    check_updates_in_stages,
    outline,
)
from tests.models.zoo.photographs.keras_bodies import check_features

NAMES = ("resnet50v2", "resnet101v2", "resnet152v2")


@pytest.mark.parametrize("name", NAMES)
def test_totals_are_those_of_keras(name: str) -> None:
    check_total(name, TOTALS_OF_KERAS[name])


@pytest.mark.parametrize("name", NAMES)
def test_layers(name: str) -> None:
    check_order(name)


@pytest.mark.parametrize("name", NAMES)
def test_smallest_image(name: str) -> None:
    check_smallest(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("one_thread")
def test_two_updates_in_stages(name: str) -> None:
    check_updates_in_stages(name, image_size=33)


def test_features_are_those_of_keras() -> None:
    check_features("resnet50v2", "ResNet50V2", height=32, width=41)


def test_the_last_block_of_a_stack_has_the_stride() -> None:
    strided = [
        name
        for name, layer in outline("resnet50v2").named_children()
        if isinstance(layer, nn.Conv2d | nn.AvgPool2d) and layer.stride in (2, (2, 2))
    ]
    blocks = [
        f"conv{block}_{step}"
        for block in ("2_block3", "3_block4", "4_block6")
        for step in ("2_conv", "0_pool")
    ]
    assert strided == ["conv1_conv", *blocks]


def test_a_norm_makes_biases_before_it_needless() -> None:
    for name, layer in outline("resnet50v2").named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.eps, layer.momentum) == (1.001e-5, 0.01), name
        if isinstance(layer, nn.Conv2d):
            assert (layer.bias is None) == name.endswith(("_1_conv", "_2_conv")), name
