"""What tests ask of every network for photographs."""

from copy import deepcopy
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.catalogue.models import model_info
from drivetrain.core.errors import BadInputError
from drivetrain.models.create import build_model, create_model
from drivetrain.models.summary import describe_layers, summarise_model
from drivetrain.models.zoo.initialise import InitialisedModel
from drivetrain.pipeline.cutting.cut import cut_model
from drivetrain.pipeline.graph.trace import trace_model
from tests.pipeline.small_models import even_stages, train_stages

CHANNELS = 3
_UPDATES, _SAMPLES = 2, 2
_RATE = 0.01


def outline(name: str, *, num_classes: int = 10) -> InitialisedModel:
    """A model without memory, for questions about its layers."""
    module_name, _, function_name = model_info(name).factory.partition(":")
    factory = getattr(import_module(module_name), function_name)
    with torch.device("meta"):
        model: InitialisedModel = factory(channels=CHANNELS, num_classes=num_classes)
    return model


def undrawn(name: str, *, num_classes: int = 10, image_size: int | None = None, **params: Any) -> nn.Module:
    """A model whose weights torch has made, which is faster than drawing them."""
    return build_model(
        name,
        channels=CHANNELS,
        image_size=image_size,
        num_classes=num_classes,
        seed=0,
        params=params,
        draws_weights=False,
    )


def check_total(name: str, expected: int, *, num_classes: int = 10) -> None:
    """Parameters and running statistics together, as Keras counts them, and as `models show` tells them."""
    size = model_info(name).image_size
    totals = summarise_model(outline(name, num_classes=num_classes), channels=CHANNELS, image_size=size)
    assert totals.parameters + totals.buffers == expected
    assert totals.trainable == totals.parameters


def check_order(name: str) -> None:
    """Layers are registered in the order in which they run, and all of them run."""
    model = outline(name)
    rows = describe_layers(model, channels=CHANNELS, image_size=model_info(name).image_size)
    assert [row.name for row in rows] == [layer for layer, _ in model.named_children()]


def check_smallest(name: str) -> None:
    """The smallest image works; one pixel less is refused by its option, and rightly."""
    size = model_info(name).min_image_size
    model = outline(name, num_classes=7).eval()
    assert model(_nothing(size)).shape == (_SAMPLES, 7)
    with pytest.raises(
        BadInputError, match=f"--image-size {size - 1} .* --image-size {size}|must be at least 1"
    ):
        create_model(name, image_size=size - 1)
    if size > 1:
        with pytest.raises(RuntimeError):
            model(_nothing(size - 1))


def _nothing(size: int) -> Tensor:
    return torch.empty(_SAMPLES, CHANNELS, size, size, device="meta")


def check_updates_in_stages(name: str, *, image_size: int, **params: Any) -> None:
    """Two updates in two stages end with the bits of the model in one piece, and change every kernel."""
    torch.manual_seed(5)
    whole = undrawn(name, image_size=image_size, **params).train()
    kernels = {key: value.clone() for key, value in whole.named_parameters() if value.ndim > 1}
    staged = deepcopy(whole)
    traced = trace_model(staged)
    cut = cut_model(traced, stage_of=even_stages(traced, 2))
    assert [bool(stage.stage_facts.parameter_names) for stage in cut.stages] == [True, True]
    for images in torch.randn(_UPDATES, _SAMPLES, CHANNELS, image_size, image_size):
        expected = whole(images)
        expected.backward(torch.ones_like(expected))
        assert bool(expected.isfinite().all())
        assert torch.equal(train_stages(cut, images), expected)
        _update(whole)
        _update(staged)
    assert all(torch.equal(value, staged.state_dict()[key]) for key, value in whole.state_dict().items())
    unchanged = [key for key, value in kernels.items() if torch.equal(value, whole.get_parameter(key))]
    assert unchanged == []


@torch.no_grad()
def _update(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.sub_(parameter.grad, alpha=_RATE)
        parameter.grad = None
