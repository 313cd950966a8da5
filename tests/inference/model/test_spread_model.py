"""A trained model over several devices of one process."""

import pytest
import torch
from tests.models.layout_models import ViewNet
from tests.pipeline.mode_models import BY_MODE, BY_SIZE, Net

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import choose_device
from drivetrain.inference.model.optimised import build_inference
from drivetrain.inference.model.spread_model import SpreadModel, spread_over_devices
from drivetrain.models.create import create_model
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.passes.forward import Precision
from drivetrain.recipe.schema import Recipe

SHAPE = (1, 8, 8)
CPU = torch.device("cpu")
FLOAT32 = Precision(compute_dtype=torch.float32, device_type="cpu")


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


@pytest.mark.parametrize("name", ["only_in_evaluation", "skipping", "looping"])
def test_code_that_asks_for_mode_or_sizes_is_evaluated(name: str) -> None:
    between, splits = {**BY_MODE, **BY_SIZE}[name]
    torch.manual_seed(0)
    model = Net(between).eval()
    images = torch.rand(3, 3, 4, 4)
    expected = model.to(memory_format=torch.channels_last)(images).detach()  # type: ignore[call-overload]
    spread = spread_over_devices(
        Recipe(pipeline_splits=splits),
        model,
        device=choose_device("cpu"),
        image_shape=(3, 4, 4),
        devices=[CPU] * 3,
    ).eval()
    with torch.no_grad():
        assert torch.equal(spread(images), expected)
        assert torch.equal(spread(images[:1]), model(images[:1]))


def test_images_of_another_size_are_refused_where_the_code_depends_on_it() -> None:
    between, splits = BY_SIZE["looping"]
    spread = spread_over_devices(
        Recipe(pipeline_splits=splits),
        Net(between),
        device=choose_device("cpu"),
        image_shape=(3, 4, 4),
        devices=[CPU] * 3,
    )
    with pytest.raises(BadInputError, match="images of 3 x 4 x 4"):
        spread(torch.rand(1, 3, 6, 6))


def test_stages_keep_the_memory_format_of_the_model() -> None:
    torch.manual_seed(0)
    model = ViewNet().eval()
    recipe = Recipe(model="my_models:ViewNet", pipeline_splits=("second",))
    choose_memory_format(recipe, model, image_shape=SHAPE)
    # As feeds deliver them.
    images = torch.rand(3, 8, 8, 1).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = model(images)
        spread = spread_over_devices(
            recipe, model, device=choose_device("cpu"), image_shape=SHAPE, devices=[CPU, CPU]
        )
        assert isinstance(spread, SpreadModel)
        for forward in (spread, build_inference(spread, precision=FLOAT32)):
            assert torch.equal(forward(images), expected)


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
