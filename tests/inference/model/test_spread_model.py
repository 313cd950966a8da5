"""A trained model over several devices of one process."""

import torch

from drivetrain.devices.device import choose_device
from drivetrain.inference.model.spread_model import SpreadModel, spread_over_devices
from drivetrain.models.create import create_model
from drivetrain.recipe.schema import Recipe

SHAPE = (1, 8, 8)
CPU = torch.device("cpu")


def test_stages_on_their_devices_compute_what_the_whole_model_does() -> None:
    model = create_model("cifar_resnet8", channels=1, num_classes=10).eval()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.rand(3, *SHAPE)
    expected = model(images).detach()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = Recipe(model="cifar_resnet8", stages=3, device_mapping=(0, 1, 0), pipeline_schedule="grouped")
    spread = spread_over_devices(
        recipe, model, device=choose_device("cpu"), image_shape=SHAPE, devices=[CPU, CPU]
    ).eval()
    assert isinstance(spread, SpreadModel)
    with torch.no_grad():
        assert torch.equal(spread(images), expected)
    assert list(spread.state_dict()) == list(state)
    changed = {name: value + 1 if value.is_floating_point() else value for name, value in state.items()}
    spread.load_state_dict(changed)
    with torch.no_grad():
        assert not torch.equal(spread(images), expected)
        assert torch.equal(spread(images), model(images))


def test_too_few_devices_hold_the_model_in_one_piece() -> None:
    model = create_model("cifar_resnet8", channels=1, num_classes=10)
    recipe = Recipe(model="cifar_resnet8", stages=3)
    device = choose_device("cpu")
    assert spread_over_devices(recipe, model, device=device, image_shape=SHAPE) is model
    assert spread_over_devices(recipe, model, device=device, image_shape=SHAPE, devices=[CPU, CPU]) is model


def test_a_measured_cut_is_taken_over() -> None:
    model = create_model("cifar_resnet8", channels=1, num_classes=10)
    recipe = Recipe(model="cifar_resnet8", stages=2, split_by="time")
    spread = spread_over_devices(
        recipe,
        model,
        device=choose_device("cpu"),
        image_shape=SHAPE,
        devices=[CPU, CPU],
        measured_cut=("conv4_block1_add",),
    )
    assert isinstance(spread, SpreadModel)
    assert spread._stages[1].stage_facts.layers[0] == "conv4_block1_add"


def test_hooks_of_the_whole_model_run() -> None:
    model = create_model("cifar_resnet8", channels=1, num_classes=10).eval()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.rand(3, *SHAPE)
    plain = model(images).detach()
    model.register_forward_pre_hook(lambda _, inputs: inputs[0] * 2)
    model.register_forward_hook(lambda _, inputs, output: output + inputs[0].mean())
    recipe = Recipe(model="cifar_resnet8", stages=2, pipeline_schedule="grouped")
    spread = spread_over_devices(
        recipe, model, device=choose_device("cpu"), image_shape=SHAPE, devices=[CPU, CPU]
    ).eval()
    with torch.no_grad():
        assert torch.equal(spread(images), model(images))
    assert not torch.equal(model(images), plain)
