"""Sizes and costs of layers, with and without values, and that the model stays as it was."""

import copy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.models.summary import describe_layers, summarise_model
from drivetrain.models.zoo.cifar_resnet import cifar_resnet8
from drivetrain.pipeline.graph import shapes as layer_seconds
from drivetrain.pipeline.graph import stand_ins
from drivetrain.pipeline.graph.shapes import find_shapes, measure_layer_seconds
from drivetrain.pipeline.graph.trace import trace_model
from tests.pipeline.small_models import Everything
from tests.slow_motion import SlowMotion


def test_every_value_has_its_size() -> None:
    traced = trace_model(Everything())
    shapes = find_shapes(traced, image_shape=(3, 1, 7, 6))
    assert shapes.values["images"].shape == (3, 1, 7, 6)
    assert shapes.values["stem"].shape == (3, 4, 7, 6)
    assert shapes.values["branch"].shape == (3, 4, 6, 6)
    assert shapes.values["classifier"].shape == (3, 3)
    assert shapes.values["stem"].num_bytes == 3 * 4 * 7 * 6 * 4
    assert "chunk" not in shapes.values
    assert "getattr_1" not in shapes.values


def test_sizes_in_another_precision() -> None:
    traced = trace_model(Everything())
    shapes = find_shapes(traced, image_shape=(3, 1, 7, 6), float_dtype=torch.bfloat16)
    assert shapes.values["stem"].dtype is torch.bfloat16
    assert shapes.values["stem"].num_bytes == 3 * 4 * 7 * 6 * 2


def test_costs_are_those_of_the_summary() -> None:
    model = cifar_resnet8(channels=3, num_classes=10)
    shapes = find_shapes(trace_model(model), image_shape=(1, 3, 8, 8))
    rows = {row.name: row for row in describe_layers(model, channels=3, image_size=8)}
    assert len(rows) == len(shapes.layers)
    for layer in shapes.layers:
        row = rows[layer.name]
        assert (layer.flops, layer.parameters, layer.buffers) == (row.flops, row.parameters, row.buffers)
    assert (
        sum(layer.flops for layer in shapes.layers) == summarise_model(model, channels=3, image_size=8).flops
    )


def test_weights_are_counted_once_and_those_of_functions_too() -> None:
    model = Everything()
    shapes = find_shapes(trace_model(model), image_shape=(1, 1, 6, 6))
    counted = sum(layer.parameters for layer in shapes.layers)
    unused = sum(parameter.numel() for parameter in model.unused.parameters())
    assert counted + unused == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("most_flops", [0, float("inf")])
def test_with_and_without_values_alike_and_the_model_untouched(
    most_flops: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_ins, "_MAX_REAL_FLOPS", most_flops)
    model = Everything()
    install_batch_norm_owner(model, kept_share=0.9)
    before = copy.deepcopy(model.state_dict())
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    shapes = find_shapes(trace_model(model), image_shape=(2, 1, 6, 6))
    assert [shapes.values[name].shape for name in ("stem", "add_1")] == [(2, 4, 6, 6)] * 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    assert all(parameter.grad is None for parameter in model.parameters())


class _ReadsValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.conv(inputs) * float(inputs.abs().sum().item() + 1)  # type: ignore[no-any-return]


def test_a_layer_that_needs_values_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "_MAX_REAL_FLOPS", 0)
    traced = trace_model(nn.Sequential(_ReadsValues(), nn.ReLU()))
    assert find_shapes(traced, image_shape=(2, 1, 3, 3)).values["_0"].shape == (2, 1, 3, 3)


def test_images_that_do_not_fit_are_refused() -> None:
    traced = trace_model(nn.Sequential(nn.Conv2d(3, 1, 1), nn.ReLU()))
    with pytest.raises(BadInputError, match="cannot take images of 1 channels and 4 x 4 pixels"):
        find_shapes(traced, image_shape=(2, 1, 4, 4))


class _Sleep(nn.Module):
    def __init__(self, time: SlowMotion) -> None:
        super().__init__()
        self.time = time

    def forward(self, inputs: Tensor) -> Tensor:
        self.time.sleep(2.0)
        return inputs * 1 if inputs.shape[0] else inputs


def test_the_slow_layer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowMotion()
    monkeypatch.setattr(layer_seconds, "time", time)
    traced = trace_model(nn.Sequential(nn.Conv2d(1, 1, 1), _Sleep(time), nn.ReLU()))
    seconds = measure_layer_seconds(traced, torch.zeros(1, 1, 4, 4), repeats=3)
    assert seconds == (0.0, 2.0, 0.0)


def test_model_and_images_stay_as_they_were() -> None:
    model = Everything()
    before, images = copy.deepcopy(model.state_dict()), torch.randn(2, 1, 6, 6)
    kept = images.clone()
    traced = trace_model(model)
    assert len(measure_layer_seconds(traced, images, repeats=1)) == len(traced.layers)
    assert model.training
    assert torch.equal(images, kept)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class _Caching(nn.Module):
    """Keeps what it computes from its weight, by device, as attention layers do in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 1, 1))
        self.cache: dict[str, Tensor] = {}
        self.seen: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        key = str(inputs.device)
        if key not in self.cache:
            self.cache[key] = self.weight * 2
        self.seen.append(inputs)
        return inputs * self.cache[key]


@pytest.mark.parametrize("most_flops", [5e9, 0])
def test_no_cache_keeps_a_stand_in(most_flops: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "_MAX_REAL_FLOPS", most_flops)
    layer = _Caching()
    find_shapes(trace_model(nn.Sequential(nn.Conv2d(3, 3, 1), layer)), image_shape=(1, 3, 8, 8))
    assert (layer.cache, layer.seen) == ({}, [])
