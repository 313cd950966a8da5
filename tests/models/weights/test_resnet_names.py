"""torchvision's names for our ResNets, in both directions; torchvision is a stand-in (`plain_resnet.py`)."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.weights.loading import load_tensors
from drivetrain.models.weights.resnet_names import to_torchvision
from drivetrain.models.zoo.resnet import ResNet
from tests.models.weights.plain_resnet import PlainResNet, trained_looking

AS_THERE = {"first_shortcut": False}
EVERY = [("resnet18", {}), ("resnet18", AS_THERE), ("resnet34", {}), ("resnet34", AS_THERE), ("resnet50", {})]


def ours(name: str, **options: Any) -> ResNet:
    model = create_model(name, channels=3, num_classes=10, **options)
    assert isinstance(model, ResNet)
    return model.eval()


@torch.no_grad()
def difference(one: nn.Module, other: nn.Module) -> float:
    """The largest difference in logits, relative to the largest logit."""
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    expected: Tensor = one(images)
    return float((other(images) - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_the_same_logits(name: str, params: dict[str, Any]) -> None:
    theirs, model = trained_looking(name), ours(name, **params)
    notes = load_tensors(model, theirs.state_dict(), given="--pretrained x")
    assert len(notes) == (name != "resnet50" and not params)
    assert difference(theirs, model) < 1e-6
    # Negative control: a single weight of a single layer.
    model.get_parameter("conv3_block1_1_conv.weight").data[0, 0, 0, 0] += 0.1
    assert difference(theirs, model) > 1e-5


def test_the_identity_in_the_first_shortcut_is_said() -> None:
    (note,) = load_tensors(ours("resnet18"), trained_looking("resnet18").state_dict(), given="--pretrained x")
    assert note == (
        "--pretrained x has no convolution in the first shortcut: conv2_block1_0_conv starts as the "
        "identity, although conv2_block1_0_bn normalises in training; --model-params '{first_shortcut: "
        "false}' builds the model without both."
    )


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_there_and_back(name: str, params: dict[str, Any]) -> None:
    """Also with the identity in the first shortcut, which is left out again."""
    theirs, model = trained_looking(name), ours(name, **params)
    load_tensors(model, theirs.state_dict(), given="x")
    returned = to_torchvision(model)
    assert returned.keys() == theirs.state_dict().keys()
    back = PlainResNet(name)
    back.load_state_dict(returned, strict=True)
    assert all(torch.equal(value, returned[key]) for key, value in theirs.state_dict().items())


def test_a_trained_first_shortcut_has_no_place_there() -> None:
    with pytest.raises(BadInputError, match=r"no place for conv2_block1_0_conv.*first_shortcut: false"):
        to_torchvision(ours("resnet18"))
    model = ours("resnet18")
    load_tensors(model, trained_looking("resnet18").state_dict(), given="x")
    model.get_parameter("conv2_block1_0_bn.bias").data[3] = 1e-6
    with pytest.raises(BadInputError, match="no place for"):
        to_torchvision(model)


def test_a_layer_that_was_added_has_no_name_there() -> None:
    model = ours("resnet18", **AS_THERE)
    model.extra = nn.Linear(2, 2)
    with pytest.raises(BadInputError, match=r"no name for extra\.weight"):
        to_torchvision(model)


def test_another_number_of_classes_and_of_channels() -> None:
    theirs = trained_looking("resnet18", num_classes=7)
    model = create_model("resnet18", channels=1, num_classes=10, **AS_THERE)
    notes = load_tensors(model, theirs.state_dict(), given="--pretrained x")
    assert notes == [
        "--pretrained x has 3 input channels in conv1_conv.weight, but the model has 1: its weights are "
        "summed over the channels.",
        "--pretrained x has 7 classes, but the model has 10: predictions starts from newly initialised "
        "weights.",
    ]


def test_weights_of_another_depth() -> None:
    with pytest.raises(BadInputError) as caught:
        load_tensors(ours("resnet18"), trained_looking("resnet34").state_dict(), given="--pretrained x")
    message = str(caught.value)
    assert (
        "107 of the model's 107 tensors fit; layer1.2.conv1.weight (64x64x3x3) is not in the model" in message
    )
    with pytest.raises(BadInputError, match=r"102 of the model's 187 .* \(64x64x1x1\) is missing"):
        load_tensors(ours("resnet34"), trained_looking("resnet18").state_dict(), given="--pretrained x")


def test_the_parameter_is_a_switch() -> None:
    with pytest.raises(BadInputError, match=r"--model-params first_shortcut: 3 is neither true nor false"):
        ours("resnet18", first_shortcut=3)
