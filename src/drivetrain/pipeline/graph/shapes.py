"""The size of every value of a traced model, and the cost of every layer in FLOPs or measured seconds."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Interpreter, Node

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.models.kept_values import keeping_values
from drivetrain.models.summary import FlopCounter
from drivetrain.pipeline.graph.stand_ins import (
    StandIns,
    attributes_kept,
    copies,
    fakes,
    images_like,
    is_cheap,
)
from drivetrain.pipeline.graph.step_modes import modes_of
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = [
    "GraphWalk",
    "LayerCost",
    "ModelShapes",
    "ValueInfo",
    "find_shapes",
    "measure_layer_seconds",
    "undisturbed",
]


class GraphWalk(Interpreter):
    """Runs every step of a graph with one input; subclasses override `run_node`.

    `walk` is used instead of `Interpreter.run`, whose progress bar creates a lock shared between processes: a
    rank that ends would print a complaint about it.
    """

    def walk(self, images: Tensor) -> None:
        """Runs all steps in order; with `garbage_collect_values` each value is freed after its last use."""
        self.args_iter = iter((images,))
        for node in self.graph.nodes:
            self.env[node] = self.run_node(node)
            if self.garbage_collect_values:
                for read in self.user_to_last_uses.get(node, []):
                    del self.env[read]
        self.env.clear()

    def run_node(self, n: Node) -> Any:
        modes = modes_of(n)
        if modes is None:
            return super().run_node(n)
        with modes.entered(self.fetch_args_kwargs_from_env(n)):
            return super().run_node(n)


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """One tensor of a forward pass."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    num_bytes: int


@dataclass(frozen=True, slots=True)
class LayerCost:
    """The cost of one layer for the batch size that was asked for."""

    name: str
    flops: int
    """Twice the multiply-adds of convolutions and matrix products in the forward pass."""
    parameters: int
    """Number of parameter elements that no earlier layer uses."""
    buffers: int
    """Number of elements of running statistics and other buffers that no earlier layer uses."""


@dataclass(frozen=True, kw_only=True)
class ModelShapes:
    """The sizes of all tensors by name, including the images, and the costs in the order of the layers."""

    values: Mapping[str, ValueInfo]
    layers: tuple[LayerCost, ...]


def find_shapes(
    traced: TracedModel, *, image_shape: Sequence[int], float_dtype: torch.dtype | None = None
) -> ModelShapes:
    """Sizes and costs for `image_shape`, batch included; `float_dtype` is the type of all floats."""
    shape = tuple(image_shape)
    failures: list[Exception] = []
    for run in _ways(traced, shape):
        try:
            with undisturbed(traced.model), torch.no_grad(), torch.random.fork_rng(devices=[]):
                results, flops = run(traced, shape)
            return _collected(traced, results, flops, float_dtype)
        except Exception as error:
            failures.append(error)
    raise BadInputError(
        f"The model cannot take images of {shape[1]} channels and {' x '.join(map(str, shape[2:]))} pixels "
        f"(--channels, --image-size): {describe_failure(failures[-1])}"
    ) from failures[-1]


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode for a block and restores the attributes of all modules afterwards."""
    with keeping_values(model), attributes_kept(model):
        for module in model.modules():
            module.training = False
        yield


_Run = Callable[[TracedModel, tuple[int, ...]], tuple[dict[Node, Any], dict[Node, int]]]


def _ways(traced: TracedModel, shape: tuple[int, ...]) -> tuple[_Run, ...]:
    """The ways to run the model, the faster one first.

    Fake tensors have no values, but a user's layer may need them; then the real pass is the second attempt.
    """
    tensors = [*traced.model.parameters(), *traced.model.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        return (_run_fake,)
    return (_run_real, _run_fake) if is_cheap(traced.model, shape) else (_run_fake, _run_real)


def _run_real(traced: TracedModel, shape: tuple[int, ...]) -> tuple[dict[Node, Any], dict[Node, int]]:
    return _Observer(traced, copies()).observe(shape)


def _run_fake(traced: TracedModel, shape: tuple[int, ...]) -> tuple[dict[Node, Any], dict[Node, int]]:
    return _Observer(traced, fakes()).observe(shape)


class _Observer(GraphWalk):
    """Runs a graph with copies or fakes of the parameters and buffers; records the result of each step."""

    def __init__(self, traced: TracedModel, stand_ins: StandIns) -> None:
        super().__init__(traced.model, graph=traced.graph, garbage_collect_values=False)
        self._traced = traced
        self._stand_ins = stand_ins
        self._counter = FlopCounter()
        self.results: dict[Node, Any] = {}
        self.flops: dict[Node, int] = {}

    def observe(self, shape: tuple[int, ...]) -> tuple[dict[Node, Any], dict[Node, int]]:
        with self._stand_ins.mode, self._counter:
            self.walk(images_like(self._traced.model, shape))
        return self.results, self.flops

    def run_node(self, n: Node) -> Any:
        before = self._counter.flops
        self.results[n] = super().run_node(n)
        self.flops[n] = self._counter.flops - before
        return self.results[n]

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        value = self._traced.attribute(target)
        return self._stand_ins.of(value) if isinstance(value, Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._stand_ins.call(self._traced.attribute(target), args, kwargs)


def _collected(
    traced: TracedModel,
    results: Mapping[Node, Any],
    flops: Mapping[Node, int],
    float_dtype: torch.dtype | None,
) -> ModelShapes:
    tensors = {node.name: result for node, result in results.items() if isinstance(result, Tensor)}
    counted: set[int] = set()
    return ModelShapes(
        values={name: _info(tensor, float_dtype) for name, tensor in tensors.items()},
        layers=tuple(
            LayerCost(layer.name, flops[layer.node], *_new_numbers(traced, layer.node, counted))
            for layer in traced.layers
        ),
    )


def _info(tensor: Tensor, float_dtype: torch.dtype | None) -> ValueInfo:
    dtype = float_dtype if float_dtype is not None and tensor.is_floating_point() else tensor.dtype
    return ValueInfo(tuple(tensor.shape), dtype, tensor.numel() * dtype.itemsize)


def _new_numbers(traced: TracedModel, node: Node, counted: set[int]) -> tuple[int, int]:
    """The numbers of parameter and buffer elements that this step is the first to use."""
    module = traced.module_of(node)
    if module is not None:
        parameters = list(module.parameters())
        named = module.named_buffers()
        buffers = [tensor for name, tensor in named if not name.endswith("num_batches_tracked")]
    else:
        taken = [traced.attribute(str(v.target)) for v in node.all_input_nodes if v.op == "get_attr"]
        parameters = [tensor for tensor in taken if isinstance(tensor, nn.Parameter)]
        buffers = []
    return _count(parameters, counted), _count(buffers, counted)


def _count(tensors: Sequence[Tensor], counted: set[int]) -> int:
    new = {id(tensor): tensor for tensor in tensors if id(tensor) not in counted}
    counted.update(new)
    return sum(tensor.numel() for tensor in new.values())


def measure_layer_seconds(traced: TracedModel, images: Tensor, *, repeats: int = 5) -> tuple[float, ...]:
    """The median seconds of each layer's forward pass.

    It runs in evaluation mode, so that batch-norm statistics do not change.
    """
    measured = []
    with undisturbed(traced.model), torch.no_grad():
        # The first pass is not counted: it includes one-time work such as allocations.
        _Clock(traced).measure(images)
        for _ in range(repeats):
            measured.append(_Clock(traced).measure(images))
    return tuple(statistics.median(run[layer.node] for run in measured) for layer in traced.layers)


class _Clock(GraphWalk):
    def __init__(self, traced: TracedModel) -> None:
        super().__init__(traced.model, graph=traced.graph)
        self._traced = traced
        self._seconds: dict[Node, float] = {}

    def measure(self, images: Tensor) -> dict[Node, float]:
        self._on_accelerator = images.device.type != "cpu"
        # A copy, as layers that work in place would otherwise change the caller's images.
        self.walk(images.clone())
        return self._seconds

    def run_node(self, n: Node) -> Any:
        self._wait()
        start = time.perf_counter()
        result = super().run_node(n)
        self._wait()
        self._seconds[n] = time.perf_counter() - start
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        return self._traced.attribute(target)

    def _wait(self) -> None:
        # Kernels run asynchronously; without this only their launch would be timed.
        if self._on_accelerator:
            torch.accelerator.synchronize()
