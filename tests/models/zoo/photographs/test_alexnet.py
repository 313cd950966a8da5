"""AlexNet: count, sizes, initial weights, training in stages."""

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.zoo.initialise import zeros
from drivetrain.models.zoo.photographs.alexnet import AlexNet, alexnet
from tests.models.zoo.known_counts import TOTALS_OF_TORCHVISION
from tests.models.zoo.photographs.checks import (
    check_order,
    check_smallest,
    check_total,
    check_updates_in_stages,
    outline,
)


def test_the_count_is_that_of_torchvision() -> None:
    check_total("alexnet", TOTALS_OF_TORCHVISION["alexnet"], num_classes=1000)


def test_layers() -> None:
    check_order("alexnet")
    convolutions = [
        (layer.out_channels, layer.kernel_size[0], layer.stride[0])
        for layer in outline("alexnet").children()
        if isinstance(layer, nn.Conv2d)
    ]
    assert convolutions == [(64, 11, 4), (192, 5, 1), (384, 3, 1), (256, 3, 1), (256, 3, 1)]


def test_smallest_image() -> None:
    check_smallest("alexnet")


@pytest.mark.usefixtures("one_thread")
def test_two_updates_in_stages() -> None:
    check_updates_in_stages("alexnet", image_size=67, dropout=0.0)


def test_initial_weights_are_those_of_the_paper() -> None:
    model = outline("alexnet")
    assert isinstance(model, AlexNet)
    starts = {}
    for name in ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8"):
        bias = torch.empty(1)
        model.initialiser_of(f"{name}.bias")(bias, torch.Generator())
        starts[name] = bias.item()
    assert starts == {
        "conv1": 0,
        "conv2": 1,
        "conv3": 0,
        "conv4": 1,
        "conv5": 1,
        "fc6": 1,
        "fc7": 1,
        "fc8": 0,
    }
    kernel = torch.empty(256, 256, 3, 3)
    assert model.initialiser_of("conv5.weight") is not zeros
    model.initialiser_of("conv5.weight")(kernel, torch.Generator().manual_seed(1))
    assert kernel.std().item() == pytest.approx(0.01, rel=0.01)


def test_dropout_is_a_share() -> None:
    assert isinstance(alexnet(channels=1, num_classes=2, dropout=0.2).get_submodule("dropout6"), nn.Dropout)
    with pytest.raises(BadInputError, match="--model-params dropout: 2"):
        create_model("alexnet", dropout=2)
