"""Xception: count as in Keras, sizes, features of the same weights, training in stages."""

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


def test_the_total_is_that_of_keras() -> None:
    check_total("xception", TOTALS_OF_KERAS["xception"])


def test_layers() -> None:
    check_order("xception")


def test_smallest_image() -> None:
    check_smallest("xception")


@pytest.mark.usefixtures("one_thread")
def test_two_updates_in_stages() -> None:
    check_updates_in_stages("xception", image_size=16)


def test_features_are_those_of_keras() -> None:
    """Sides that the strides divide evenly and others, which are padded differently."""
    check_features("xception", "Xception", height=72, width=39)


def test_settings_are_those_of_keras() -> None:
    for name, layer in outline("xception").named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.eps, layer.momentum) == (1e-3, 0.01), name
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is None, name
            assert (layer.groups > 1) == name.endswith("_depthwise"), name
