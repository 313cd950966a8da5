"""The padded U-Net: any size, depth, width and norm."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from drivetrain.catalogue.models import check_image_size, model_info, padded_size
from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.summary import describe_layers
from drivetrain.models.zoo import unet_same as family
from drivetrain.models.zoo.unet_same import num_groups
from tests.models.zoo.known_counts import SAME_COUNTS
from tests.models.zoo.leaf_tracer import LeafTracer


def small(**params: Any) -> nn.Module:
    return create_model("unet_same", **{"width": 2, "depth": 3, **params}).eval()


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def layer_names(**params: Any) -> list[str]:
    return [row.name for row in describe_layers(small(**params), channels=1, image_size=8)]


def test_the_default_has_as_many_parameters_as_the_unet() -> None:
    with torch.device("meta"):
        model = family.unet_same(channels=1, num_classes=2)
    assert sum(parameter.numel() for parameter in model.parameters()) == SAME_COUNTS["unet_same"]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 40), (17, 33), (16, 16), (8, 7)])
@pytest.mark.parametrize("norm", ["none", "batch", "group"])
@torch.no_grad()
def test_logits_have_the_size_of_the_images(height: int, width: int, norm: str) -> None:
    assert small(norm=norm, num_classes=3)(random(2, 1, height, width)).shape == (2, 3, height, width)


@torch.no_grad()
def test_an_odd_image_is_one_padded_by_hand_and_cropped() -> None:
    model = small()
    image = random(1, 1, 13, 18)
    padded = functional.pad(image, (3, 3, 1, 2), mode="replicate")
    assert padded.shape[-2:] == (padded_size(13, depth=3), padded_size(18, depth=3)) == (16, 24)
    assert torch.equal(model(image), model(padded)[..., 1:14, 3:21])
    zeros = functional.pad(image, (3, 3, 1, 2))
    assert not torch.equal(model(image), model(zeros)[..., 1:14, 3:21])


@pytest.mark.parametrize("depth", [1, 2, 8])
@torch.no_grad()
def test_depth_is_the_number_of_poolings(depth: int) -> None:
    model = create_model("unet_same", depth=depth, width=1).eval()
    pools = [layer for layer in model.children() if isinstance(layer, nn.MaxPool2d)]
    assert len(pools) == depth
    assert model.get_parameter(f"encoder_block_{depth}_conv_1.weight").shape[0] == 2**depth
    assert model(random(1, 1, 3, 3)).shape == (1, 2, 3, 3)


def test_layer_names_in_order() -> None:
    assert layer_names(depth=1) == [
        "pad",
        "encoder_block_0_conv_0",
        "encoder_block_0_conv_1",
        "encoder_block_0_maxpooling",
        "encoder_block_1_conv_0",
        "encoder_block_1_conv_1",
        "encoder_block_1_dropout",
        "decoder_block_0_transpose",
        "decoder_block_0_concat",
        "decoder_block_0_conv_0",
        "decoder_block_0_conv_1",
        "output_conv",
        "crop",
    ]
    assert layer_names(depth=1, norm="batch")[1:4] == [
        "encoder_block_0_conv_0",
        "encoder_block_0_norm_0",
        "encoder_block_0_relu_0",
    ]


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
def test_registration_order_is_execution_order(norm: str) -> None:
    assert [name for name, _ in small(norm=norm).named_children()] == layer_names(norm=norm)


@pytest.mark.parametrize(
    ("norm", "kind"), [("none", None), ("batch", nn.BatchNorm2d), ("group", nn.GroupNorm)]
)
def test_there_is_no_bias_before_a_norm(norm: str, kind: type[nn.Module] | None) -> None:
    layers = dict(small(norm=norm).named_children())
    norms = [name for name, layer in layers.items() if kind is not None and type(layer) is kind]
    assert len(norms) == (0 if norm == "none" else 14)
    for name, layer in layers.items():
        if "_conv_" in name:
            assert isinstance(layer, nn.Conv2d)
            assert (layer.bias is None) == (norm != "none"), name
        if "_transpose" in name or name == "output_conv":
            assert "bias" in dict(layer.named_parameters())


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
@torch.no_grad()
def test_every_convolution_is_followed_by_a_relu(norm: str) -> None:
    model = small(norm=norm)
    lowest: list[float] = []
    for name, layer in model.named_children():
        if name.endswith(("_maxpooling", "_dropout", "_concat")) or name == "output_conv":
            layer.register_forward_pre_hook(
                lambda _module, inputs: lowest.extend(part.min().item() for part in inputs)
            )
    assert model(random(2, 1, 16, 16)).min() < 0
    assert len(lowest) == 3 + 1 + 2 * 3 + 1
    assert min(lowest) >= 0


def test_initial_weights() -> None:
    model = create_model("unet_same", depth=2, width=32, norm="group")
    kernel = model.get_parameter("encoder_block_2_conv_1.weight")
    assert kernel.std().item() == pytest.approx((2 / (128 * 9)) ** 0.5, rel=0.02)
    kernel = model.get_parameter("decoder_block_0_transpose.weight")
    assert kernel.std().item() == pytest.approx((2 / ((128 + 64) * 4)) ** 0.5, rel=0.02)
    assert bool((model.get_parameter("encoder_block_0_norm_0.weight") == 1).all())
    assert not model.get_parameter("encoder_block_0_norm_0.bias").any()


@pytest.mark.parametrize(
    ("width", "groups"), [(1, 1), (2, 1), (8, 1), (16, 2), (24, 3), (44, 4), (64, 8), (1024, 32), (257, 1)]
)
def test_groups_divide_the_channels(width: int, groups: int) -> None:
    assert num_groups(width) == groups


def test_dropout_is_off_unless_asked_for() -> None:
    for dropout in (0.0, 0.3):
        layer = small(dropout=dropout).get_submodule("encoder_block_3_dropout")
        assert isinstance(layer, nn.Dropout)
        assert layer.p == dropout


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"depth": 0}, "--model-params depth: 0 is not a whole number from 1 to 8, such as 4"),
        ({"depth": 9}, "depth: 9"),
        ({"depth": "four"}, "depth: 'four'"),
        ({"width": 0}, "--model-params width: 0"),
        ({"norm": "bach"}, r"norm: 'bach' is not one of none, batch, group\. Did you mean batch\?"),
        ({"norm": None}, "norm: None"),
        ({"dropout": 1.0}, "--model-params dropout: 1.0"),
        ({"drop_rate": 0.5}, r"drop_rate is not a parameter of unet_same"),
    ],
)
def test_params_that_do_not_work(params: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        create_model("unet_same", **params)


def test_every_size_is_allowed() -> None:
    info = model_info("unet_same")
    assert (info.task, info.output_margin, info.image_size) == ("segmentation", 0, 256)
    for size in (1, 2, 255, 1000):
        check_image_size(info, size)


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
def test_channels_last_holds_from_the_first_layer_to_the_logits(norm: str) -> None:
    model = small(norm=norm, channels=3)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    formats: list[bool] = []
    for layer in model.children():
        layer.register_forward_hook(
            lambda _module, _inputs, output: formats.append(
                output.is_contiguous(memory_format=torch.channels_last)
            )
        )
    model(random(2, 3, 17, 33).contiguous(memory_format=torch.channels_last))
    assert len(formats) == len(list(model.children()))
    assert all(formats)


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
@torch.no_grad()
def test_the_network_can_be_traced_layer_by_layer(norm: str) -> None:
    model = small(norm=norm)
    graph = LeafTracer().trace(model)
    assert {node.op for node in graph.nodes} == {"placeholder", "call_module", "output"}
    traced = fx.GraphModule(model, graph)
    for size in (5, 16):
        assert torch.equal(traced(random(1, 1, size, size)), model(random(1, 1, size, size)))


def test_gradients_reach_every_parameter() -> None:
    model = create_model("unet_same", depth=2, width=8, norm="batch", dropout=0.5).train()
    model(random(2, 1, 9, 10)).square().sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())
