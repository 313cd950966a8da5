"""What the networks of depthwise and densely connected convolutions are made of, without training them."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.catalogue.models import model_info
from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.models.create import build_model, create_model
from drivetrain.models.from_keras.torch_layers import DropPath
from drivetrain.models.heads import head_parameters
from drivetrain.models.summary import describe_layers, summarise_model
from drivetrain.models.zoo.initialise import (
    fan_out_uniform,
    glorot_uniform,
    he_normal,
    he_normal_fan_out,
    ones,
    zeros,
)
from drivetrain.models.zoo.photographs import efficientnet, mobilenet_v3
from drivetrain.models.zoo.photographs.mobile_layers import Multiply, SpatialMean, convolution, rounded_width
from tests.models.zoo.known_counts import LIGHT_TOTALS
from tests.models.zoo.photographs.keras_networks import NORMALISATION_VALUES

SMALLEST_OF_A_FAMILY = (
    "mobilenet",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "densenet121",
    "efficientnet_b0",
)
CPU = Device(torch_device=torch.device("cpu"), reason="test")


def outline(name: str, *, num_classes: int = 10, **params: Any) -> nn.Module:
    """A model without memory, for questions about its layers."""
    module, _, function = model_info(name).factory.partition(":")
    with torch.device("meta"):
        model: nn.Module = getattr(import_module(module), function)(
            channels=3, num_classes=num_classes, **params
        )
    return model


@pytest.mark.parametrize(("name", "total"), LIGHT_TOTALS.items())
def test_totals_are_those_of_keras_and_layers_are_registered_as_they_run(name: str, total: int) -> None:
    """Running statistics count; what normalises pixels inside Keras's EfficientNet is not here."""
    model = build_model(
        name, channels=3, image_size=32, num_classes=10, seed=0, params={}, draws_weights=False
    )
    totals = summarise_model(model, channels=3, image_size=32)
    left_out = NORMALISATION_VALUES if name.startswith("efficientnet") else 0
    assert totals.parameters + totals.buffers == total - left_out
    assert totals.trainable == totals.parameters
    rows = describe_layers(model, channels=3, image_size=32)
    assert [child for child, _ in model.named_children()] == [row.name for row in rows]


@pytest.mark.parametrize("name", LIGHT_TOTALS)
def test_the_head_is_the_last_layer(name: str) -> None:
    assert head_parameters(outline(name)) == ["predictions.weight", "predictions.bias"]


def shape_of(name: str, *, side: int) -> tuple[int, ...]:
    return tuple(outline(name, num_classes=7).eval()(torch.empty(2, 3, side, side, device="meta")).shape)


@pytest.mark.parametrize("name", SMALLEST_OF_A_FAMILY)
def test_the_smallest_image_works(name: str) -> None:
    smallest = model_info(name).min_image_size
    assert shape_of(name, side=smallest) == shape_of(name, side=smallest + 1) == (2, 7)


@pytest.mark.parametrize("name", ["mobilenet", "densenet121"])
def test_one_pixel_less_than_the_smallest_image_does_not_work(name: str) -> None:
    with pytest.raises(RuntimeError):
        shape_of(name, side=model_info(name).min_image_size - 1)


def test_layers_of_a_block_with_a_gate_in_order() -> None:
    names = [name for name, _ in outline("efficientnet_b0").named_children()]
    start = names.index("block2b_expand_conv")
    assert names[start : start + 16] == [
        *(f"block2b_expand_{step}" for step in ("conv", "bn", "activation")),
        *(f"block2b_{step}" for step in ("dwconv", "bn", "activation")),
        *(
            f"block2b_se_{step}"
            for step in (
                "squeeze",
                "reduce",
                "reduce_activation",
                "expand",
                "expand_activation",
                "excite",
            )
        ),
        *(f"block2b_{step}" for step in ("project_conv", "project_bn", "drop", "add")),
    ]


def test_a_gate_weights_each_channel() -> None:
    features = torch.arange(12.0).reshape(1, 3, 2, 2)
    gate = torch.tensor([0.0, 0.5, 1.0]).reshape(1, 3, 1, 1)
    assert torch.equal(Multiply()(features, gate)[0, 1], features[0, 1] / 2)
    assert SpatialMean()(features).flatten().tolist() == [1.5, 5.5, 9.5]


@pytest.mark.parametrize(("side", "stride", "outputs"), [(8, 2, 4), (9, 2, 5), (1, 2, 1), (9, 1, 9)])
def test_only_the_stride_shrinks(side: int, stride: int, outputs: int) -> None:
    layer = convolution(2, 4, 5, stride=stride)
    assert layer(torch.zeros(1, 2, side, side)).shape == (1, 4, outputs, outputs)


@pytest.mark.parametrize(
    ("wished", "width"),
    [(4, 8), (18, 24), (30, 32), (36, 40), (60, 64), (35.2, 32), (1408, 1408), (10.9, 16)],
)
def test_widths_are_multiples_of_eight(wished: float, width: int) -> None:
    assert rounded_width(wished) == width


def drop_rates(model: nn.Module) -> dict[str, float]:
    return {name: layer.drop_prob for name, layer in model.named_children() if isinstance(layer, DropPath)}


def test_drop_connect_grows_with_depth() -> None:
    rates = drop_rates(outline("efficientnet_b0"))
    assert rates["block2b_drop"] == pytest.approx(0.2 * 2 / 16)
    assert list(rates.values()) == sorted(rates.values())
    assert len(rates) == 9
    assert not drop_rates(outline("efficientnet_b0", drop_connect=0.0))


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("mobilenet", 0.001),
        ("mobilenet_v3_small", 0.2),
        ("mobilenet_v3_large", 0.2),
        *((f"efficientnet_b{number}", 0.2 if number < 2 else 0.3) for number in range(4)),
    ],
)
def test_dropout_before_the_classifier(name: str, rate: float) -> None:
    assert [layer.p for layer in outline(name).children() if isinstance(layer, nn.Dropout)] == [rate]


def test_every_draw_is_by_place() -> None:
    """The trainer knows the layers that draw: a dropout, and a drop-path in each block with a shortcut."""
    model = outline("efficientnet_b0")
    assert install_counter_dropout(model, seed=0, context=UpdateContext(CPU.torch_device)) == 10


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("mobilenet", {"dropout": 1}, r"--model-params dropout: 1 .* such as 0\.5"),
        ("mobilenet_v3_small", {"dropout": "x"}, "dropout: 'x'"),
        ("efficientnet_b2", {"drop_connect": -0.1}, r"drop_connect: -0\.1"),
        ("densenet121", {"dropout": 0.1}, "dropout is not a parameter of densenet121"),
    ],
)
def test_params_that_do_not_work(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        create_model(name, **params)


def test_initialisers_of_efficientnet() -> None:
    with torch.device("meta"):
        model = efficientnet.efficientnet_b0(channels=3, num_classes=10)
    initialisers = {
        "stem_conv.weight": he_normal_fan_out,
        "block1a_dwconv.weight": he_normal,
        "block1a_se_reduce.weight": he_normal_fan_out,
        "block1a_se_reduce.bias": zeros,
        "block1a_project_bn.weight": ones,
        "predictions.weight": fan_out_uniform,
        "predictions.bias": zeros,
    }
    assert {name: model.initialiser_of(name) for name in initialisers} == initialisers


def test_initialisers_of_the_others_are_defaults() -> None:
    with torch.device("meta"):
        model = mobilenet_v3.mobilenet_v3_small(channels=3, num_classes=10)
    kernels = [name for name, tensor in model.named_parameters() if tensor.dim() > 1]
    assert {model.initialiser_of(name) for name in kernels} == {glorot_uniform}


def same_weights(first: nn.Module, second: nn.Module) -> list[bool]:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return [torch.equal(one, other) for one, other in pairs if one.dim() > 1]


def test_weights_depend_on_the_seed_alone() -> None:
    models = [create_model("mobilenet_v3_small", num_classes=10, seed=seed) for seed in (1, 1, 2)]
    assert all(same_weights(models[0], models[1]))
    assert not any(same_weights(models[0], models[2]))


def whole(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        outputs: Tensor = model.eval()(images)
    return outputs


@pytest.mark.parametrize("name", ["mobilenet", "mobilenet_v3_small", "efficientnet_b0"])
def test_dropout_is_off_in_evaluation(name: str) -> None:
    model = create_model(name, num_classes=3)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert torch.equal(whole(model, images), whole(model, images))
