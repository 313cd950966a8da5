"""VGG: counts as in Keras, sizes, features of the same weights, training in stages."""

import pytest

from tests.models.zoo.known_counts import TOTALS_OF_KERAS
from tests.models.zoo.photographs.checks import (
    check_order,
    check_smallest,
    check_total,
    check_updates_in_stages,
)
from tests.models.zoo.photographs.keras_bodies import check_features

NAMES = ("vgg16", "vgg19")


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
    check_updates_in_stages(name, image_size=32)


def test_features_are_those_of_keras() -> None:
    check_features("vgg16", "VGG16", height=32, width=65)
