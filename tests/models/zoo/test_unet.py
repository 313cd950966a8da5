"""The U-Net without padding: counts, sizes, names, topology, initial weights, memory."""

import math
import weakref
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from drivetrain.catalogue.models import model_info
from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.summary import LayerRow, describe_layers, summarise_model
from drivetrain.models.zoo import unet
from drivetrain.models.zoo.layers import CentralCrop
from drivetrain.models.zoo.unet import UNet
from tests.models.zoo.known_counts import UNET_COUNTS
from tests.models.zoo.leaf_tracer import LeafTracer

UP_COUNTS = {
    "unet": [2097664, 524544, 131200, 32832],
    "unet_medical": [4719104, 1179904, 295040, 73792],
}
NAMES = list(UNET_COUNTS)


def outline(name: str) -> UNet:
    """A model of full width without memory, for questions about its layers."""
    with torch.device("meta"):
        model: UNet = getattr(unet, name)(channels=1, num_classes=2)
    return model


def small(name: str, **params: Any) -> nn.Module:
    """A model of 4 channels for pictures of 4 x 4 pixels, in evaluation mode."""
    return create_model(name, image_size=4, width=4, **params).eval()


def picture(*, size: int = 4, channels: int = 1) -> Tensor:
    return torch.randn(2, channels, size + 184, size + 184, generator=torch.Generator().manual_seed(1))


def count_of(model: nn.Module, *patterns: str) -> int:
    return sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith(patterns))


@pytest.mark.parametrize("name", NAMES)
def test_parameter_counts(name: str) -> None:
    model = outline(name)
    assert count_of(model, "") == UNET_COUNTS[name]
    assert [count_of(model, f"encoder_block_{level}_") for level in range(5)] == [
        37568,
        221440,
        885248,
        3539968,
        14157824,
    ]
    assert [count_of(model, f"decoder_block_{index}_transpose") for index in range(4)] == UP_COUNTS[name]
    assert [count_of(model, f"decoder_block_{index}_conv") for index in range(4)] == [
        7078912,
        1769984,
        442624,
        110720,
    ]
    assert count_of(model, "output_conv") == 130


@pytest.mark.parametrize(("name", "gflops"), [("unet", 300.9), ("unet_medical", 314.9)])
def test_forward_cost(name: str, gflops: float) -> None:
    totals = summarise_model(outline(name), channels=1, image_size=572)
    assert round(totals.flops / 1e9, 1) == gflops
    assert totals.parameters == totals.trainable == UNET_COUNTS[name]


def test_multiply_adds_to_five_digits() -> None:
    assert round(summarise_model(outline("unet"), channels=1, image_size=572).flops / 2e9, 2) == 150.43


@pytest.fixture(scope="module", params=NAMES)
def rows(request: pytest.FixtureRequest) -> list[LayerRow]:
    return describe_layers(create_model(request.param, width=2), channels=1, image_size=572)


def test_spatial_trace(rows: list[LayerRow]) -> None:
    sizes = [row.output_shape[-1] for row in rows if "_conv_" in row.name]
    assert sizes == [570, 568, 282, 280, 138, 136, 66, 64, 30, 28, 54, 52, 102, 100, 198, 196, 390, 388]
    assert [row.output_shape[-1] for row in rows if "maxpooling" in row.name] == [284, 140, 68, 32]
    assert [row.output_shape[-1] for row in rows if "transpose" in row.name] == [56, 104, 200, 392]
    assert [row.output_shape[-1] for row in rows if "crop" in row.name] == [392, 200, 104, 56]
    assert rows[-1].output_shape == (2, 388, 388)
    assert all(row.output_shape[-2] == row.output_shape[-1] for row in rows)


def test_layer_names_in_order(rows: list[LayerRow]) -> None:
    crops = ["central_crop", "central_crop_1", "central_crop_2", "central_crop_3"]

    def convolutions(prefix: str) -> list[str]:
        return [f"{prefix}_conv_0", f"{prefix}_conv_1"]

    down = [
        [*convolutions(f"encoder_block_{level}"), crops[level], f"encoder_block_{level}_maxpooling"]
        for level in range(4)
    ]
    up = [
        [f"{prefix}_transpose", f"{prefix}_concat", *convolutions(prefix)]
        for prefix in (f"decoder_block_{index}" for index in range(4))
    ]
    assert [row.name for row in rows] == [
        *chain(*down),
        *convolutions("encoder_block_4"),
        "encoder_block_4_dropout",
        *chain(*up),
        "output_conv",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_registration_order_is_execution_order(name: str, rows: list[LayerRow]) -> None:
    model = outline(name)
    assert [child for child, _ in model.named_children()] == [row.name for row in rows]
    crops = [layer.pixels for layer in model.children() if isinstance(layer, CentralCrop)]
    assert crops == [88, 40, 16, 4]


def forward_by_hand(model: nn.Module, images: Tensor, *, up: Callable[[Tensor, nn.Module], Tensor]) -> Tensor:
    """The published network, its skips cropped only where they are used."""

    def block(prefix: str, features: Tensor) -> Tensor:
        for index in (0, 1):
            layer = model.get_submodule(f"{prefix}_conv_{index}")
            assert isinstance(layer, nn.Conv2d)
            features = functional.conv2d(features, layer.weight, layer.bias).relu()
        return features

    skips: list[Tensor] = []
    features = images
    for level in range(4):
        skips.append(block(f"encoder_block_{level}", features))
        features = functional.max_pool2d(skips[-1], 2)
    features = block("encoder_block_4", features)
    for index in range(4):
        above = up(features, model.get_submodule(f"decoder_block_{index}_transpose"))
        skip = skips.pop()
        first = (skip.shape[-1] - above.shape[-1]) // 2
        middle = slice(first, first + above.shape[-1])
        features = block(f"decoder_block_{index}", torch.cat([above, skip[..., middle, middle]], dim=1))
    return functional.conv2d(features, model.get_parameter("output_conv.weight"))


def up_by_hand(features: Tensor, layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.ConvTranspose2d)
    size = 2 * features.shape[-1]
    full = functional.conv_transpose2d(features, layer.weight, layer.bias, stride=2)
    return full[..., :size, :size].relu()


def shifted_by_hand(features: Tensor, layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.ConvTranspose2d)
    size = 2 * features.shape[-1]
    full = functional.conv_transpose2d(features, layer.weight, layer.bias, stride=2)
    return full[..., -size:, -size:].relu()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [4, 20])
@torch.no_grad()
def test_the_whole_network_against_plain_functions(name: str, size: int) -> None:
    model = small(name)
    images = picture(size=size)
    logits = model(images)
    assert logits.shape == (2, 2, size, size)
    assert torch.equal(logits, forward_by_hand(model, images, up=up_by_hand))
    assert bool((logits < 0).any())
    shifted = forward_by_hand(model, images, up=shifted_by_hand)
    assert torch.equal(logits, shifted) == (name == "unet")


@pytest.mark.parametrize("name", NAMES)
def test_gradients_against_plain_functions(name: str) -> None:
    model = small(name).double()
    images = picture().double()
    weights = list(model.parameters())
    gradients = torch.autograd.grad(model(images).square().sum(), weights)
    by_hand = forward_by_hand(model, images, up=up_by_hand).square().sum()
    expected = torch.autograd.grad(by_hand, weights, allow_unused=True)
    for own, other in zip(gradients[:-1], expected[:-1], strict=True):
        assert torch.allclose(own, other, rtol=1e-10, atol=1e-12)
        assert bool(own.any())


@torch.no_grad()
def test_channels_classes_and_oblong_pictures() -> None:
    model = create_model("unet", channels=3, image_size=20, num_classes=5, width=2).eval()
    assert model(torch.zeros(1, 3, 4 + 184, 20 + 184)).shape == (1, 5, 4, 20)


def test_the_registered_margin_and_sizes_are_the_networks() -> None:
    for name in NAMES:
        info = model_info(name)
        assert (info.task, info.image_size, info.channels, info.num_classes) == ("segmentation", 388, 1, 2)
        assert info.image_size + 2 * info.output_margin == 572
        for size in (info.min_image_size, info.min_image_size + info.image_size_step):
            assert small(name)(picture(size=size)).shape[-1] == size
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            small(name)(picture(size=info.min_image_size + 1))


def test_a_picture_that_vanishes_is_one_sentence() -> None:
    with pytest.raises(BadInputError, match="96 x 96 pixels are too small to crop 88 on each side"):
        small("unet")(torch.zeros(1, 1, 100, 100))


@pytest.mark.parametrize(("size", "below", "above"), [(512, 500, 516), (389, 388, 404), (387, 372, 388)])
def test_sizes_between_are_refused_with_the_nearest(size: int, below: int, above: int) -> None:
    message = rf"{size} pixels do not fit unet; .* --image-size \(or --tile-size\) {below} and {above}\."
    with pytest.raises(BadInputError, match=message):
        create_model("unet", image_size=size, width=1)
    create_model("unet", image_size=below, width=1)
    create_model("unet", image_size=above, width=1)


def test_dropout_is_at_the_bottleneck_alone() -> None:
    model = create_model("unet", width=1)
    dropouts = {name: layer.p for name, layer in model.named_modules() if isinstance(layer, nn.Dropout)}
    assert dropouts == {"encoder_block_4_dropout": 0.5}
    changed = create_model("unet_medical", width=1, drop_rate=0.25).get_submodule("encoder_block_4_dropout")
    assert isinstance(changed, nn.Dropout)
    assert changed.p == 0.25


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"drop_rate": 1}, r"--model-params drop_rate: 1 .* such as 0\.5"),
        ({"width": 0}, r"--model-params width: 0 is not a whole number of at least 1, such as 64"),
        ({"width": 2.5}, "width: 2.5"),
        ({"width": True}, "width: True"),
        ({"dropout": 0.1}, r"--model-params dropout is not a parameter of unet\. .*Known: width, drop_rate"),
    ],
)
def test_params_that_do_not_work(params: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        create_model("unet", **params)


def expected_deviation(layer: nn.Module, *, he_init: bool) -> float:
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    field = math.prod(layer.kernel_size)
    if he_init and isinstance(layer, nn.Conv2d):
        return math.sqrt(2 / (layer.in_channels * field))
    return math.sqrt(2 / ((layer.in_channels + layer.out_channels) * field))


@pytest.mark.parametrize("name", NAMES)
def test_initial_weights(name: str) -> None:
    model = create_model(name, width=16)
    large = 0
    for layer_name, layer in model.named_modules():
        if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            continue
        assert layer.bias is not None
        assert not layer.bias.any(), layer_name
        if layer.weight.numel() > 10_000:
            large += 1
            expected = expected_deviation(layer, he_init=name == "unet")
            assert layer.weight.std().item() == pytest.approx(expected, rel=0.02), layer_name
            other = expected_deviation(layer, he_init=name != "unet")
            if isinstance(layer, nn.Conv2d):
                assert layer.weight.std().item() != pytest.approx(other, rel=0.02), layer_name
    assert large >= 13


def test_he_kernels_have_no_tails_and_glorot_ones_are_even() -> None:
    kernel = create_model("unet", width=16).get_parameter("encoder_block_4_conv_1.weight")
    deviation = math.sqrt(2 / (256 * 9))
    assert 2.2 < kernel.abs().max().item() / deviation <= 2 / 0.87962566 + 1e-5
    kernel = create_model("unet_medical", width=16).get_parameter("encoder_block_4_conv_1.weight")
    assert kernel.abs().max().item() == pytest.approx(math.sqrt(3) * kernel.std().item(), rel=0.01)


class ViewCrop(nn.Module):
    """The crop that this project does not use: a window onto the whole."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[..., 88:-88, 88:-88]


def whole_outlives_its_level(model: nn.Module) -> bool:
    """Whether, without gradients, the features that the first crop saw are still there at the bottleneck."""
    whole: list[weakref.ref[Tensor]] = []
    is_alive: list[bool] = []
    model.get_submodule("central_crop").register_forward_pre_hook(
        lambda _module, inputs: whole.append(weakref.ref(inputs[0]))
    )
    model.get_submodule("encoder_block_4_conv_0").register_forward_pre_hook(
        lambda _module, _inputs: is_alive.append(whole[0]() is not None)
    )
    with torch.no_grad():
        model(picture())
    return is_alive[0]


def test_a_skip_does_not_keep_the_whole_in_memory() -> None:
    assert not whole_outlives_its_level(small("unet"))


def test_a_skip_that_is_a_view_would() -> None:
    model = small("unet")
    model.add_module("central_crop", ViewCrop())
    assert whole_outlives_its_level(model)


@pytest.mark.parametrize("name", NAMES)
def test_channels_last_holds_from_the_first_layer_to_the_logits(name: str) -> None:
    model = small(name, channels=3)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    formats: list[bool] = []
    for layer in model.children():
        layer.register_forward_hook(
            lambda _module, _inputs, output: formats.append(
                output.is_contiguous(memory_format=torch.channels_last)
            )
        )
    images = picture(channels=3)
    model(images.contiguous(memory_format=torch.channels_last))
    assert all(formats)
    assert len(formats) == 36
    formats.clear()
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    model(images)
    assert not any(formats[:-1])


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_network_can_be_traced_layer_by_layer(name: str) -> None:
    model = small(name)
    graph = LeafTracer().trace(model)
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    assert calls == [child for child, _ in model.named_children()]
    assert {node.op for node in graph.nodes} == {"placeholder", "call_module", "output"}
    traced = fx.GraphModule(model, graph)
    for size in (4, 20):
        assert torch.equal(traced(picture(size=size)), model(picture(size=size)))
