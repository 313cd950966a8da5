"""Architecture of the small classifiers: counts, names, order, logits. The others have files of their own."""

import pytest
import torch
from torch import nn

from drivetrain.catalogue.models import model_info, model_names
from drivetrain.models.create import create_model
from drivetrain.models.summary import LayerRow, describe_layers, summarise_model
from tests.models.zoo.known_counts import (
    LARGE_COUNTS,
    LIGHT_TOTALS,
    SAME_COUNTS,
    TOTALS_OF_KERAS,
    TOTALS_OF_TORCHVISION,
    UNET_COUNTS,
)

RESNETS = {8: 75290, 20: 269722, 32: 464154, 44: 658586, 56: 853018}
MOVING_STATISTICS = {8: 480, 20: 1376, 32: 2272, 44: 3168, 56: 4064}
COUNTS = {
    "toy_model": 242,
    "mnist_cnn": 34826,
    "lenet": 134538,
    **{f"cifar_resnet{depth}": n for depth, n in RESNETS.items()},
}
PHOTOGRAPHS = {*LARGE_COUNTS, *TOTALS_OF_KERAS, *TOTALS_OF_TORCHVISION}


@pytest.mark.parametrize(("name", "parameters"), COUNTS.items())
def test_parameter_counts(name: str, parameters: int) -> None:
    model = create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_every_model_is_counted_somewhere() -> None:
    assert {*COUNTS, *PHOTOGRAPHS, *LIGHT_TOTALS, *UNET_COUNTS, *SAME_COUNTS} == set(model_names())


def test_toy_model_for_grey_digits() -> None:
    model = create_model("toy_model", channels=1, image_size=28)
    assert sum(parameter.numel() for parameter in model.parameters()) == 170


@pytest.mark.parametrize("depth", RESNETS)
def test_moving_statistics_of_residual_networks(depth: int) -> None:
    totals = summarise_model(create_model(f"cifar_resnet{depth}"), channels=3, image_size=32)
    assert totals.buffers == MOVING_STATISTICS[depth]
    assert totals.parameters == totals.trainable == RESNETS[depth]


@pytest.mark.parametrize("depth", RESNETS)
@pytest.mark.parametrize("training", [False, True])
def test_a_zero_image_leaves_two_classes_undecided(depth: int, training: bool) -> None:
    model = create_model(f"cifar_resnet{depth}", num_classes=2).train(training)
    probabilities = model(torch.zeros(2, 3, 32, 32)).softmax(1)
    assert probabilities.tolist() == [[0.5, 0.5]] * 2


@pytest.mark.parametrize("name", COUNTS)
def test_smallest_image_works_and_outputs_are_logits(name: str) -> None:
    info = model_info(name)
    model = create_model(name, image_size=info.min_image_size, num_classes=7).eval()
    logits = model(torch.rand(3, info.channels, info.min_image_size, info.min_image_size))
    assert logits.shape == (3, 7)
    assert not torch.allclose(logits.exp().sum(1), torch.ones(3))
    assert not torch.allclose(logits.sum(1), torch.ones(3))


@pytest.mark.parametrize("name", ["toy_model", "mnist_cnn", "lenet"])
def test_one_pixel_less_than_the_smallest_image_does_not_work(name: str) -> None:
    info = model_info(name)
    size = info.min_image_size - 1
    model = create_model(name, image_size=info.min_image_size).eval()
    with pytest.raises(RuntimeError):
        model(torch.rand(1, info.channels, size, size))


@pytest.mark.parametrize("size", [8, 31, 33])
def test_residual_networks_take_any_size(size: int) -> None:
    assert create_model("cifar_resnet8", image_size=size).eval()(torch.rand(2, 3, size, size)).shape == (
        2,
        10,
    )


def layer_names(name: str) -> list[str]:
    info = model_info(name)
    rows = describe_layers(create_model(name), channels=info.channels, image_size=info.image_size)
    return [row.name for row in rows]


def test_layers_of_cifar_resnet8_in_order() -> None:
    def block(prefix: str, *, downsamples: bool) -> list[str]:
        shortcut = [f"{prefix}_shortcut"] if downsamples else []
        first = f"{prefix}_layer1_conv_ds" if downsamples else f"{prefix}_layer1_conv"
        branch = [
            first,
            *(f"{prefix}_{part}" for part in ("layer1_bn", "layer1_relu", "layer2_conv", "layer2_bn")),
        ]
        return [*branch, *shortcut, f"{prefix}_add", f"{prefix}_post_addition_relu"]

    assert layer_names("cifar_resnet8") == [
        "conv1_conv",
        "conv1_bn",
        "conv1_relu",
        *block("conv2_block1", downsamples=False),
        *block("conv3_block1", downsamples=True),
        *block("conv4_block1", downsamples=True),
        "avg_pool",
        "fc_layer",
    ]


def test_only_the_first_block_of_a_stack_downsamples() -> None:
    shortcuts = [name for name in layer_names("cifar_resnet32") if name.endswith(("_shortcut", "_conv_ds"))]
    assert shortcuts == [
        "conv3_block1_layer1_conv_ds",
        "conv3_block1_shortcut",
        "conv4_block1_layer1_conv_ds",
        "conv4_block1_shortcut",
    ]


def test_layers_of_the_small_models_in_order() -> None:
    stem = ["conv2d_0", "max_pooling2d_0", "relu_0", "conv2d_1", "max_pooling2d_1", "relu_1", "flatten"]
    assert layer_names("toy_model") == [*stem, "dense"]
    assert layer_names("mnist_cnn") == [*stem, "dropout", "dense"]
    dense = ["dense1", "relu1", "dense2", "relu2", "predictions"]
    assert layer_names("lenet") == ["conv1", "pool1", "conv2", "pool2", "flatten", *dense]


@pytest.mark.parametrize("name", COUNTS)
def test_registration_order_is_execution_order(name: str) -> None:
    assert list(dict(create_model(name).named_children())) == layer_names(name)


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


@pytest.mark.parametrize(
    ("name", "num_stages", "splits"),
    [
        ("cifar_resnet8", 2, ["conv4_block1_layer1_bn"]),
        ("cifar_resnet8", 3, ["conv4_block1_layer1_conv_ds", "conv4_block1_layer2_conv"]),
        (
            "cifar_resnet8",
            4,
            ["conv3_block1_layer2_conv", "conv4_block1_layer1_bn", "conv4_block1_layer2_conv"],
        ),
        ("toy_model", 2, ["conv2d_1"]),
        ("mnist_cnn", 2, ["conv2d_1"]),
    ],
)
def test_weights_are_spread_over_the_layers_as_in_the_original(
    name: str, num_stages: int, splits: list[str]
) -> None:
    info = model_info(name)
    rows = describe_layers(create_model(name), channels=info.channels, image_size=info.image_size)
    assert balanced_splits(rows, num_stages) == splits


def test_settings_of_residual_networks() -> None:
    for name, layer in create_model("cifar_resnet20").named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.eps, layer.momentum) == (1.001e-5, 0.03), name
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is None, name


def test_pooling_before_relu_changes_nothing() -> None:
    model = create_model("mnist_cnn").eval()
    images = torch.randn(4, 1, 28, 28)
    features = images
    for convolution in (model.get_submodule("conv2d_0"), model.get_submodule("conv2d_1")):
        features = nn.functional.max_pool2d(convolution(features).relu(), 2)
    expected = model.get_submodule("dense")(features.flatten(1))
    assert torch.equal(model(images), expected)
