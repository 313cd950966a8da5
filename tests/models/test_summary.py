from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models import summary
from drivetrain.models.create import create_model
from drivetrain.models.summary import LayerRow, describe_layers, summarise_model


class Scaled(nn.Module):
    """Has a weight of its own beside a layer, uses functions, and runs one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.inner = nn.Conv2d(4, 4, 1, bias=False)
        self.projection = nn.Parameter(torch.ones(3, 4), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        features = self.inner(self.inner(images)) * self.scale[:, None, None]
        return nn.functional.linear(features.mean((2, 3)), weight=self.projection)


class ReadsValues(nn.Module):
    """Cannot run where tensors have no values."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(3, 2)

    def forward(self, images: Tensor) -> Tensor:
        brightest = images.max().item()
        logits: Tensor = self.classifier(images.mean((2, 3)) + brightest)
        return logits


@pytest.fixture
def on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "_MAX_REAL_FLOPS", -1)


def test_rows_and_flops_computed_by_hand() -> None:
    assert describe_layers(create_model("toy_model"), channels=3, image_size=32) == [
        LayerRow("conv2d_0", "Conv2d", (4, 30, 30), 4 * 27 + 4, 0, 2 * 27 * 4 * 30 * 30),
        LayerRow("max_pooling2d_0", "MaxPool2d", (4, 6, 6), 0, 0, 0),
        LayerRow("relu_0", "ReLU", (4, 6, 6), 0, 0, 0),
        LayerRow("conv2d_1", "Conv2d", (8, 6, 6), 8 * 4 + 8, 0, 2 * 4 * 8 * 6 * 6),
        LayerRow("max_pooling2d_1", "MaxPool2d", (8, 1, 1), 0, 0, 0),
        LayerRow("relu_1", "ReLU", (8, 1, 1), 0, 0, 0),
        LayerRow("flatten", "Flatten", (8,), 0, 0, 0),
        LayerRow("dense", "Linear", (10,), 90, 0, 2 * 8 * 10),
    ]


def test_batch_norm_counts_its_moving_statistics() -> None:
    rows = {
        row.name: row for row in describe_layers(create_model("cifar_resnet8"), channels=3, image_size=32)
    }
    assert rows["conv1_bn"] == LayerRow("conv1_bn", "BatchNorm2d", (16, 32, 32), 32, 32, 0)


def test_grouped_and_transposed_convolutions() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2, stride=2), nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2)
    )
    first, second = describe_layers(model, channels=4, image_size=9)
    assert (first.output_shape, first.flops) == ((8, 4, 4), 2 * (8 * 4 * 4) * (2 * 9))
    assert (second.output_shape, second.flops) == ((6, 8, 8), 2 * (8 * 4 * 4) * (3 * 4))


@pytest.mark.parametrize("name", ["toy_model", "mnist_cnn", "cifar_resnet20"])
def test_rows_add_up_to_the_totals(name: str) -> None:
    channels, image_size = (1, 28) if name == "mnist_cnn" else (3, 32)
    model = create_model(name)
    rows = describe_layers(model, channels=channels, image_size=image_size)
    totals = summarise_model(model, channels=channels, image_size=image_size)
    assert sum(row.parameters for row in rows) == totals.parameters
    assert sum(row.buffers for row in rows) == totals.buffers
    assert sum(row.flops for row in rows) == totals.flops


def test_the_meta_device_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (create_model("cifar_resnet8"), create_model("mnist_cnn", channels=3, image_size=32)):
        real = describe_layers(model, channels=3, image_size=32)
        with monkeypatch.context() as patched:
            patched.setattr(summary, "_MAX_REAL_FLOPS", -1)
            assert describe_layers(model, channels=3, image_size=32) == real


def check_untouched() -> None:
    model = create_model("cifar_resnet8").train()
    before = deepcopy(model.state_dict())
    random_state = torch.get_rng_state()
    summarise_model(model, channels=3, image_size=32)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert torch.equal(torch.get_rng_state(), random_state)


def test_the_model_is_left_untouched() -> None:
    check_untouched()


@pytest.mark.usefixtures("on_meta")
def test_the_model_is_left_untouched_on_meta() -> None:
    check_untouched()


def test_weights_outside_of_leaves_and_functions_are_counted() -> None:
    model = nn.Sequential(Scaled())
    rows = describe_layers(model, channels=4, image_size=5)
    assert rows == [
        LayerRow("0.inner", "Conv2d", (4, 5, 5), 16, 0, 2 * 16 * 25),
        LayerRow("0.inner", "Conv2d", (4, 5, 5), 0, 0, 2 * 16 * 25),
        LayerRow("0", "Scaled", (3,), 4 + 12, 0, 2 * 12),
    ]
    totals = summarise_model(model, channels=4, image_size=5)
    assert (totals.parameters, totals.trainable, totals.flops) == (32, 20, 2 * 2 * 16 * 25 + 24)


def test_a_layer_nobody_calls_is_in_the_totals() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    model[1].register_module("unused", nn.Linear(3, 3))
    assert summarise_model(model, channels=3, image_size=2).parameters == 26 + 12


def test_a_model_that_is_one_layer() -> None:
    (row,) = describe_layers(nn.Conv2d(3, 2, 1), channels=3, image_size=4)
    assert (row.name, row.parameters) == ("(model)", 8)


@pytest.mark.usefixtures("on_meta")
def test_a_model_that_reads_values_is_run_for_real() -> None:
    assert summarise_model(ReadsValues(), channels=3, image_size=4).flops == 2 * 6


def test_a_model_that_cannot_take_the_image_is_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"--channels 1 and --image-size 32: RuntimeError: .*channels"):
        describe_layers(create_model("cifar_resnet8"), channels=1, image_size=32)
