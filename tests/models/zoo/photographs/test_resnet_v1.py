"""ResNets of the first version: counts as in Keras, sizes, features of the same weights, stages."""

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

NAMES = ("resnet50v1", "resnet101v1", "resnet152v1")


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
    check_features("resnet50v1", "ResNet50", height=32, width=41)


def test_the_first_convolution_of_a_stack_has_the_stride() -> None:
    strided = [
        name
        for name, layer in outline("resnet50v1").named_children()
        if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)
    ]
    blocks = [f"conv{stack}_block1_{position}_conv" for stack in (3, 4, 5) for position in (1, 0)]
    assert strided == ["conv1_conv", *blocks]


def test_settings_are_those_of_keras() -> None:
    for name, layer in outline("resnet50v1").named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.eps, layer.momentum) == (1.001e-5, 0.01), name
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is not None, name
