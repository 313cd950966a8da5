"""`--freeze`: what stops, what stands still with it, and patterns that cannot be meant."""

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.models.create import create_model
from drivetrain.models.freeze import FrozenBatchNorm, freeze_parameters
from drivetrain.optim.flat_parameters import FlatParameters


def build() -> nn.Module:
    return create_model("cifar_resnet8", image_size=8)


def trainable(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


STEM = ["conv1_conv.weight", "conv1_bn.weight", "conv1_bn.bias"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("conv1_*", STEM),
        ("conv1_*.*", STEM),
        ("conv1_b?", STEM[1:]),
        ("conv1_conv", STEM[:1]),
        ("conv1_bn.bias", STEM[2:]),
    ],
)
def test_layers_and_parameters_are_matched(pattern: str, expected: list[str]) -> None:
    model = build()
    assert freeze_parameters(model, [pattern]) == expected
    assert set(trainable(model)) == {name for name, _ in model.named_parameters()} - set(expected)


def test_outer_modules_are_matched() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(2, 2))
    assert freeze_parameters(model, ["0"]) == ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"]
    assert trainable(model) == ["1.weight", "1.bias"]


def test_nothing_asked_changes_nothing() -> None:
    model = build()
    assert freeze_parameters(model, ()) == []
    assert not any(isinstance(module, FrozenBatchNorm) for module in model.modules())


def test_batch_norms_stand_still_only_when_all_of_them_is_frozen() -> None:
    model = build()
    freeze_parameters(model, ["conv1_bn", "conv2_block1_layer1_bn.bias"])
    assert isinstance(model.get_submodule("conv1_bn"), FrozenBatchNorm)
    assert isinstance(model.get_submodule("conv2_block1_layer1_bn"), nn.BatchNorm2d)


def test_a_frozen_model_trains_around_its_frozen_part() -> None:
    model = build()
    names = list(model.state_dict())
    freeze_parameters(model, ["conv1_*", "conv2_*"])
    assert list(model.state_dict()) == names
    before = {name: value.clone() for name, value in model.state_dict().items()}
    owner = install_batch_norm_owner(model, kept_share=None)
    parameters = FlatParameters(model)
    assert {segment.name for segment in parameters.segments} == set(trainable(model))
    model.train()
    model(torch.rand(4, 3, 8, 8)).square().sum().backward()
    owner.commit()
    parameters.values.sub_(parameters.gradients)
    changed = {
        name
        for name, value in model.state_dict().items()
        if not torch.equal(value, before[name]) and "num_batches" not in name
    }
    assert changed
    assert not {name for name in changed if name.startswith(("conv1_", "conv2_"))}
    assert "conv3_block1_layer1_bn.running_mean" in changed


def test_a_frozen_batch_norm_normalises_by_its_statistics_in_training() -> None:
    original = nn.BatchNorm2d(2)
    original.running_mean = torch.tensor([1.0, 2.0])
    images = torch.rand(3, 2, 4, 4)
    expected = original.eval()(images)
    assert torch.equal(FrozenBatchNorm(original).train()(images), expected)


@pytest.mark.parametrize(
    ("patterns", "part"),
    [
        (["conv1_convv"], "--freeze conv1_convv matches no parameter and no layer of the model; "),
        (["conv1_convv"], "--freeze conv1_conv works."),
        (["fc_layer", ""], "--freeze  matches no parameter"),
        (["zzz"], "--freeze conv1_conv works."),
        (["*"], "--freeze * freezes every parameter, so there is nothing to train; leave fc_layer out."),
    ],
)
def test_refused(patterns: list[str], part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        freeze_parameters(build(), patterns)
    assert part in str(caught.value)
