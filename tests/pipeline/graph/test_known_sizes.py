"""Tracing with known sizes: what becomes a number, what stays symbolic, what is refused."""

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.pipeline.graph import stand_ins
from drivetrain.pipeline.graph.trace import TracedModel, trace_model

SHAPE = (2, 6, 4)


class _Root(nn.Module):
    """A model whose code needs the height as a number, and then does something else."""

    def __init__(self, code: Callable[..., Any], layer: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.layer = nn.ReLU() if layer is None else layer
        self.code = code

    def forward(self, images: Tensor) -> Any:
        assert images.shape[2] == 6
        return self.code(self, self.layer(self.conv(images)))


def _traced(code: Callable[..., Any], layer: nn.Module | None = None) -> TracedModel:
    traced = trace_model(_Root(code, layer), image_shape=SHAPE)
    assert traced.image_shape == SHAPE
    return traced


def _check(traced: TracedModel) -> None:
    module = fx.GraphModule(traced.model, traced.graph)
    for batch in (1, 2, 3, 4, 7):
        images = torch.randn(batch, *SHAPE)
        assert torch.equal(module(images), traced.model(images)), batch


def _rows(self: nn.Module, inputs: Tensor) -> Tensor:
    batch, channels, height, width = inputs.shape
    rows = [inputs[:, :, row] * math.sqrt(height) for row in range(height)]
    return torch.stack(rows, 2).reshape(batch * channels, height, width).view(batch, -1)


def _first_samples(self: nn.Module, inputs: Tensor) -> Tensor:
    some = inputs[:3]
    return some.reshape(some.shape[0], -1)


def _transposed(self: nn.Module, inputs: Tensor) -> Tensor:
    columns = inputs.flatten(1).T
    return columns * len(columns) + columns.mT.mT.ndim


def _pairs(self: nn.Module, inputs: Tensor) -> Tensor:
    assert inputs.size()[0] == inputs.shape[0]
    halves = [part.sum(1) for part in inputs.tensor_split(3, dim=1)]
    return torch.cat([half for half in halves if half.dim() == 3], dim=0)


def _kinds(self: nn.Module, inputs: Tensor) -> Tensor:
    sizes = inputs.shape[2:]
    assert isinstance(sizes, tuple)
    assert all(isinstance(size, int) for size in sizes)
    assert isinstance(inputs.chunk(3, 1), tuple)
    assert isinstance(inputs, Tensor)
    assert not isinstance(inputs, list | tuple)
    return inputs.flatten(2).reshape(-1, 3, int(sizes[0] / 2), 8)


@pytest.mark.parametrize("most_flops", [5e9, 0])
@pytest.mark.parametrize("code", [_rows, _first_samples, _transposed, _pairs, _kinds])
def test_the_graph_is_right_for_every_batch_size(
    code: Callable[..., Any], most_flops: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_ins, "_MAX_REAL_FLOPS", most_flops)
    _check(_traced(code))


def test_a_model_without_memory_is_traced_as_well() -> None:
    traced = trace_model(_Root(_rows).to("meta"), image_shape=SHAPE)
    assert [layer.name for layer in traced.layers] == [layer.name for layer in _traced(_rows).layers]


def test_sizes_are_only_fixed_where_they_must_be() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Flatten())
    assert trace_model(model, image_shape=SHAPE).image_shape is None


def _batch(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs if inputs.shape[0] > 1 else inputs * 2


def _one(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs if inputs.shape[0] == 1 else inputs * 2


def _samples(self: nn.Module, inputs: Tensor) -> Tensor:
    return torch.stack([inputs[index] for index in range(inputs.shape[0])])


def _rows_of_batch(self: nn.Module, inputs: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in inputs])


def _half(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs[: int(inputs.size(0) / 2)]


def _length(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs * len(inputs)


def _values(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs if inputs.sum() > 0 else -inputs


def _number(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs * float(inputs.sum())


def _type(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs if inputs.dtype == torch.float32 else inputs.float()


def _device(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs if inputs.get_device() < 0 else inputs * 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (_batch, "branches on the batch size"),
        (_one, "branches on the batch size"),
        (_samples, "converts the batch size to a plain number"),
        (_rows_of_batch, "loops over a tensor"),
        (_half, "converts the batch size to a plain number"),
        (_length, "asks for the length of a batch"),
        (_values, "branches on the values"),
        (_number, "converts a tensor to a plain number"),
        (_type, "type or device of a tensor"),
        (_device, "type or device of a tensor"),
    ],
)
def test_what_depends_on_more_than_image_sizes_is_refused(code: Callable[..., Any], reason: str) -> None:
    line = code.__code__.co_firstlineno + 1
    with pytest.raises(BadInputError, match=reason) as caught:
        _traced(code)
    assert f"test_known_sizes.py line {line} " in str(caught.value)


def test_without_an_image_size_the_code_is_refused() -> None:
    line = _Root.forward.__code__.co_firstlineno + 1
    with pytest.raises(BadInputError, match=f"line {line} branches on the values or sizes"):
        trace_model(_Root(_rows))


class _Restless(nn.Module):
    """A layer that draws, counts and moves a buffer in every pass."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3, 1, 1))
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        self.mean = self.mean + 1
        noise = random.random() + np.random.random() + torch.rand(1)
        return inputs * self.weight + noise


def test_model_and_generators_stay_as_they_were() -> None:
    layer = _Restless()
    model = _Root(_rows, layer)
    before = copy.deepcopy(model.state_dict())
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]
    methods = nn.Module.__call__, nn.Module.__getattr__, nn.Module.__setattr__
    traced = trace_model(model, image_shape=SHAPE)
    assert traced.image_shape == SHAPE
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()  # type: ignore[index]
    assert (nn.Module.__call__, nn.Module.__getattr__, nn.Module.__setattr__) == methods


class _NeedsValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight if float(inputs.detach().sum()) > 0 else inputs * 0


def _sizes_after(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs * 2 if inputs.shape[1] == 3 else inputs


def test_a_layer_that_cannot_run_without_values_hides_sizes_but_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _check(_traced(_sizes_after, _NeedsValues()))
    monkeypatch.setattr(stand_ins, "_MAX_REAL_FLOPS", 0)
    _check(_traced(lambda self, inputs: inputs * 2, _NeedsValues()))
    with pytest.raises(BadInputError, match="branches on the values or sizes"):
        _traced(_sizes_after, _NeedsValues())


class _TypedRoot(nn.Module):
    """Like models of transformers: its own code converts images that have not the type of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def forward(self, images: Tensor) -> Tensor:
        if images.dtype != self.conv.weight.dtype:
            images = images.to(self.conv.weight.dtype)
        outputs: Tensor = self.conv(images).flatten(1)
        return outputs


def test_a_comparison_with_the_type_of_the_images_is_answered_and_checked_in_each_pass() -> None:
    traced = trace_model(_TypedRoot(), image_shape=SHAPE)
    _check(traced)
    module = fx.GraphModule(traced.model.double(), traced.graph)
    module(torch.zeros(2, *SHAPE, dtype=torch.float64))
    message = r"test_known_sizes\.py line \d+ compares the types of tensors.*--precision 32\.32 works"
    with pytest.raises(RunFailedError, match=message):
        module(torch.zeros(2, *SHAPE))


class _Outputs(dict[str, Tensor]):
    """Like ModelOutput of transformers: looks at the type of what it holds."""

    def __init__(self, features: Tensor) -> None:
        assert not isinstance(features, np.ndarray)
        super().__init__(features=features)


class _Scale(nn.Module):
    """A user's layer, of whose result nothing is known before it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.weight


class _ReturnsObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = _Scale()

    def forward(self, inputs: Tensor) -> _Outputs:
        return _Outputs(self.scale(inputs))


def _reads_an_object(self: nn.Module, inputs: Any) -> Tensor:
    features: Tensor = inputs["features"]
    return features.mean((2, 3))


def test_code_that_asks_for_the_type_of_a_layers_result_is_traced() -> None:
    traced = _traced(_reads_an_object, _ReturnsObject())
    _check(traced)
    assert "layer.scale" in [layer.name for layer in traced.layers]
