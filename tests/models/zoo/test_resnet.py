"""The residual networks for photographs: counts, names, order, initial weights, small images."""

import pytest
import torch
from torch import nn

from drivetrain.models.create import build_model, create_model
from drivetrain.models.summary import LayerRow, describe_layers, summarise_model
from drivetrain.models.zoo import resnet
from drivetrain.models.zoo.initialise import Initialiser, ones, zeros
from drivetrain.models.zoo.resnet import ResNet
from tests.models.zoo.known_counts import LARGE_COUNTS


def outline(name: str, *, num_classes: int = 1000) -> ResNet:
    """A model without memory, for questions about its layers."""
    with torch.device("meta"):
        model: ResNet = getattr(resnet, name)(channels=3, num_classes=num_classes)
    return model


@pytest.mark.parametrize(("name", "parameters"), LARGE_COUNTS.items())
def test_parameter_counts(name: str, parameters: int) -> None:
    assert sum(parameter.numel() for parameter in outline(name).parameters()) == parameters


@pytest.mark.parametrize("name", LARGE_COUNTS)
def test_head_has_the_classes_asked_for(name: str) -> None:
    model = outline(name, num_classes=7)
    assert model.predictions.out_features == 7
    assert model.predictions.in_features == (512 if name in ("resnet18", "resnet34") else 2048)


def test_totals_of_resnet50_with_moving_statistics() -> None:
    totals = summarise_model(outline("resnet50"), channels=3, image_size=224)
    assert totals.parameters + totals.buffers == 25610152
    assert totals.flops == 8178368512


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_a_zero_image_leaves_two_classes_undecided(name: str) -> None:
    model = create_model(name, num_classes=2).eval()
    with torch.inference_mode():
        probabilities = model(torch.zeros(2, 3, 64, 64)).softmax(1)
    assert probabilities.tolist() == [[0.5, 0.5]] * 2


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("size", [1, 33])
def test_small_images_work(name: str, size: int) -> None:
    model = outline(name, num_classes=7).eval()
    assert model(torch.empty(3, 3, size, size, device="meta")).shape == (3, 7)


def layer_rows(name: str) -> list[LayerRow]:
    return describe_layers(outline(name), channels=3, image_size=224)


STEM = ["conv1_conv", "conv1_bn", "conv1_relu", "pool1_pool"]


def branch(block: str, *positions: int) -> list[str]:
    return [f"{block}_{position}_{step}" for position in positions for step in ("conv", "bn", "relu")]


def test_layers_of_resnet50_in_order() -> None:
    names = [row.name for row in layer_rows("resnet50")]
    first, second = "conv2_block1", "conv2_block2"
    assert names[:4] == STEM
    assert names[4:16] == [
        *branch(first, 1, 2),
        f"{first}_0_conv",
        f"{first}_3_conv",
        f"{first}_0_bn",
        f"{first}_3_bn",
        f"{first}_add",
        f"{first}_out",
    ]
    assert names[16:26] == [
        *branch(second, 1, 2),
        *(f"{second}_{step}" for step in ("3_conv", "3_bn", "add", "out")),
    ]
    assert names[-2:] == ["avg_pool", "predictions"]
    assert [name for name in names if name.endswith("_out")][-1] == "conv5_block3_out"


def test_layers_of_resnet18_in_order() -> None:
    names = [row.name for row in layer_rows("resnet18")]
    block = "conv2_block1"
    steps = ("0_conv", "2_conv", "0_bn", "2_bn", "add", "out")
    assert names[4:13] == [*branch(block, 1), *(f"{block}_{step}" for step in steps)]


@pytest.mark.parametrize("name", LARGE_COUNTS)
def test_the_first_block_of_every_stack_has_a_convolution_in_its_shortcut(name: str) -> None:
    shortcuts = [layer for layer, _ in outline(name).named_children() if layer.endswith("_0_conv")]
    assert shortcuts == [f"conv{stack}_block1_0_conv" for stack in (2, 3, 4, 5)]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_registration_order_is_execution_order(name: str) -> None:
    assert list(dict(outline(name).named_children())) == [row.name for row in layer_rows(name)]


def test_the_3x3_convolution_of_a_bottleneck_has_the_stride() -> None:
    strided = [
        name
        for name, layer in outline("resnet50").named_children()
        if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)
    ]
    blocks = [f"conv{stack}_block1_{position}_conv" for stack in (3, 4, 5) for position in (2, 0)]
    assert strided == ["conv1_conv", *blocks]


def balanced_splits(rows: list[LayerRow], num_stages: int) -> list[str]:
    """The layer in which each k-th share of all stored numbers is reached."""
    total = sum(row.parameters + row.buffers for row in rows)
    splits: list[str] = []
    count = 0
    for row in rows:
        count += row.parameters + row.buffers
        while len(splits) < num_stages - 1 and count >= (len(splits) + 1) * total / num_stages:
            splits.append(row.name)
    return splits


def test_weights_are_spread_over_the_layers_as_in_the_original() -> None:
    rows = layer_rows("resnet50")
    assert balanced_splits(rows, 2) == ["conv5_block1_0_conv"]
    assert balanced_splits(rows, 4) == ["conv4_block5_1_conv", "conv5_block1_0_conv", "conv5_block3_1_conv"]


@pytest.mark.parametrize("name", ["resnet34", "resnet101"])
def test_settings(name: str) -> None:
    for layer_name, layer in outline(name).named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.eps, layer.momentum) == (1.001e-5, 0.03), layer_name
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is None, layer_name


def scale_initialisers(name: str) -> dict[str, Initialiser]:
    model = outline(name)
    scales = [parameter for parameter, _ in model.named_parameters() if parameter.endswith("_bn.weight")]
    return {scale: model.initialiser_of(scale) for scale in scales}


@pytest.mark.parametrize("name", ["resnet50", "resnet152"])
def test_identity_blocks_of_bottleneck_networks_start_as_the_identity(name: str) -> None:
    for scale, initialiser in scale_initialisers(name).items():
        closes_identity = scale.endswith("_3_bn.weight") and "_block1_" not in scale
        assert initialiser is (zeros if closes_identity else ones), scale


def test_scales_of_basic_networks_start_at_one() -> None:
    assert set(scale_initialisers("resnet34").values()) == {ones}


def test_initial_kernels() -> None:
    model = create_model("resnet18", num_classes=10)
    stem = model.get_parameter("conv1_conv.weight")
    assert float(stem.detach().abs().max()) <= (6 / (49 * (3 + 64))) ** 0.5
    assert float(stem.detach().std()) == pytest.approx((2 / (49 * (3 + 64))) ** 0.5, rel=0.02)
    block = model.get_parameter("conv3_block2_1_conv.weight")
    assert float(block.detach().std()) == pytest.approx((1 / (9 * 128)) ** 0.5, rel=0.01)
    head = model.get_parameter("predictions.weight")
    assert float(head.detach().abs().max()) <= (6 / (512 + 10)) ** 0.5


def test_a_model_for_a_plan_draws_nothing() -> None:
    def build(*, draws_weights: bool) -> nn.Module:
        return build_model(
            "cifar_resnet8",
            channels=3,
            image_size=8,
            num_classes=10,
            seed=0,
            params={},
            draws_weights=draws_weights,
        )

    drawn, outlined = build(draws_weights=True), build(draws_weights=False)
    assert drawn.state_dict().keys() == outlined.state_dict().keys()
    assert not torch.equal(drawn.get_parameter("fc_layer.weight"), outlined.get_parameter("fc_layer.weight"))


@pytest.mark.parametrize("name", ["resnet18", "resnet34"])
def test_the_first_stack_may_do_without_a_convolution_in_its_shortcut(name: str) -> None:
    whole, plain = (create_model(name, num_classes=7, first_shortcut=with_it) for with_it in (True, False))
    assert isinstance(plain, ResNet)
    missing = [layer for layer, _ in whole.named_children() if layer not in dict(plain.named_children())]
    assert missing == ["conv2_block1_0_conv", "conv2_block1_0_bn"]
    state = whole.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in plain.state_dict().items())
    assert plain(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
