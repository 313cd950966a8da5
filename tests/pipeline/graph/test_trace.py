"""Tracing: names, what stays whole, what is refused, and that the model stays as it was."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.core.errors import BadInputError
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.models.zoo.cifar_resnet import cifar_resnet8
from drivetrain.models.zoo.unet_same import unet_same
from drivetrain.pipeline.graph.trace import trace_model
from tests.pipeline.small_models import Everything, triple


def names_of(model: nn.Module) -> list[str]:
    return [layer.name for layer in trace_model(model).layers]


def test_layers_have_the_models_own_names() -> None:
    model = cifar_resnet8(channels=3, num_classes=10)
    paths = [name for name, module in model.named_modules() if not any(True for _ in module.children())]
    assert sorted(names_of(model)) == sorted(paths)
    assert names_of(model)[:3] == ["conv1_conv", "conv1_bn", "conv1_relu"]


def test_functions_are_named_by_their_nodes() -> None:
    names = names_of(Everything())
    assert names[:3] == ["stem", "relu", "block.conv1"]
    assert {"branch", "custom", "noisy", "cat", "chunk", "relu_", "interpolate"} <= set(names) | {"mul_1"}
    assert not {"branch.conv", "noisy.conv", "getattr_1"} & set(names)


def test_a_module_that_runs_twice_is_numbered() -> None:
    names = names_of(Everything())
    assert [name for name in names if name.startswith("block.relu")] == ["block.relu", "block.relu#2"]


def test_drivetrains_own_layers_are_leaves() -> None:
    model = unet_same(channels=1, num_classes=2, depth=1, width=2, norm="batch", dropout=0.5)
    install_counter_dropout(model, seed=1, context=UpdateContext(torch.device("cpu")))
    names = names_of(model)
    assert names[0] == "pad"
    assert names[-1] == "crop"
    assert "encoder_block_1_dropout" in names


def test_nothing_of_the_model_changes() -> None:
    model = Everything()
    model.block.bn1.eval()
    before = copy.deepcopy(model.state_dict())
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    state = torch.get_rng_state()
    trace_model(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    assert torch.equal(torch.get_rng_state(), state)


class _Keeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        self.kept = inputs
        return self.act(inputs)  # type: ignore[no-any-return]


class _OwnNorm(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.act = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean.mul_(0.5)
        return self.act(inputs - self.mean)  # type: ignore[no-any-return]


class _Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.act(inputs * torch.rand(1))  # type: ignore[no-any-return]


class _Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.dropout(self.act(inputs), training=self.training)


class _OtherResult(nn.Module):
    """Computes the same in both modes and gives back something else."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.act(inputs)
        return outputs if self.training else inputs


class _Assigning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = inputs * 1
        outputs[:, 0] = 0
        return self.act(outputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [_Keeper, _OwnNorm, _Drawing, _Dropping, _OtherResult, _Assigning])
def test_what_a_graph_cannot_hold_stays_whole(kind: type[nn.Module]) -> None:
    module = kind()
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sequential(module, nn.Sigmoid()))
    assert names_of(model) == ["0", "1.0", "1.1"]
    assert not hasattr(module, "kept")
    assert float(getattr(module, "mean", torch.zeros(()))) == 0


class _Root(nn.Module):
    def __init__(self, code: Callable[..., Any]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        self.code = code

    def forward(self, images: Tensor, scale: float | None = None) -> Any:
        return self.code(self, self.conv(images))


def _branch(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs if inputs.sum() > 0 else -inputs


def _loop(self: nn.Module, inputs: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in inputs])


def _custom(self: nn.Module, inputs: Tensor) -> Any:
    return triple(inputs)  # type: ignore[no-untyped-call]


def _keep(self: nn.Module, inputs: Tensor) -> Tensor:
    self.kept = inputs
    return inputs


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (_branch, "branches on the values or sizes"),
        (_loop, "loops over a tensor"),
        (_custom, "calls _Triple, which has its own backward pass"),
        (_keep, "assigns self.kept"),
    ],
)
def test_the_models_own_code_is_named_by_its_line(code: Callable[..., Any], reason: str) -> None:
    line = code.__code__.co_firstlineno + 1
    with pytest.raises(BadInputError, match=reason) as caught:
        trace_model(_Root(code))
    assert f"test_trace.py line {line} " in str(caught.value)
    assert "--model" in str(caught.value)


def test_a_model_gives_one_tensor() -> None:
    with pytest.raises(BadInputError, match="one tensor"):
        trace_model(_Root(lambda self, inputs: (inputs, inputs)))


def test_the_input_has_the_name_of_the_argument() -> None:
    traced = trace_model(_Root(lambda self, inputs: inputs * 2))
    assert (traced.input, traced.output) == ("images", "mul")


def test_constants_do_not_stay_in_the_model() -> None:
    model = _Root(lambda self, inputs: inputs * torch.tensor([2.0]))
    traced = trace_model(model)
    assert [value.tolist() for value in traced.constants.values()] == [[2.0]]
    assert not any("constant" in name for name in vars(model))


def _by_type(self: nn.Module, inputs: Tensor) -> Tensor:
    if isinstance(inputs, list | tuple):
        inputs = inputs[0]
    if torch.is_tensor(inputs) and isinstance(inputs.T, Tensor):
        return inputs * 2
    return inputs[0]


def test_isinstance_finds_a_tensor() -> None:
    traced = trace_model(_Root(_by_type))
    assert [layer.name for layer in traced.layers][-1] == "mul"


def _by_type_of_size(self: nn.Module, inputs: Tensor) -> Tensor:
    return inputs * 2 if isinstance(inputs.shape[1] * 1, int) else inputs


def test_a_type_that_is_not_known_is_not_guessed() -> None:
    line = _by_type_of_size.__code__.co_firstlineno + 1
    with pytest.raises(BadInputError, match=f"line {line} asks for the type of a value"):
        trace_model(_Root(_by_type_of_size))


def _dropout(self: nn.Module, inputs: Tensor) -> Tensor:
    return functional.dropout(inputs, training=self.training) * torch.tensor([2.0])


def test_the_root_has_one_graph_for_each_mode_where_they_differ() -> None:
    traced = trace_model(_Root(_dropout))
    assert traced.evaluation is not None
    modes = [graph.nodes["dropout"].kwargs["training"] for graph in (traced, traced.evaluation)]
    assert modes == [True, False]
    for graph in (traced, traced.evaluation):
        assert all("scope" in node.meta for node in graph.graph.nodes)
        assert [value.tolist() for value in graph.constants.values()] == [[2.0]]
    assert trace_model(_Root(lambda self, inputs: inputs * torch.tensor([2.0]))).evaluation is None


def test_other_constants_are_another_graph() -> None:
    traced = trace_model(_Root(lambda self, inputs: inputs * torch.tensor([2.0 + self.training])))
    assert traced.evaluation is not None
    found = [[value.tolist() for value in graph.constants.values()] for graph in (traced, traced.evaluation)]
    assert found == [[[3.0]], [[2.0]]]


class _Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3)
        self.small = _Dropping()

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.dropout(self.small(self.conv(inputs)), training=self.training)


def test_small_modules_stay_whole_and_large_ones_get_two_graphs() -> None:
    traced = trace_model(nn.Sequential(nn.Conv2d(1, 1, 1), _Large()))
    assert [layer.name for layer in traced.layers] == ["0", "1.conv", "1.small", "dropout"]
    assert traced.evaluation is not None
    assert traced.layers[-1].scope == "1"
