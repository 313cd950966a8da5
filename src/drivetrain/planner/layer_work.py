"""The work of each layer of a traced model for one micro-batch: FLOPs, and bytes read, written and kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Node

from drivetrain.pipeline.graph.shapes import GraphWalk, ModelShapes, undisturbed
from drivetrain.pipeline.graph.stand_ins import StandIns, images_like
from drivetrain.pipeline.graph.trace import TracedModel
from drivetrain.pipeline.memory.weight_memory import storage_key

__all__ = ["LayerWork", "kept_bytes", "layer_work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """The forward pass of one micro-batch in a layer; `output_bytes` are sent if a stage ends after it."""

    name: str
    flops: int
    parameters: int
    read_bytes: int
    output_bytes: int

    @property
    def moved_bytes(self) -> int:
        """The bytes that the forward pass reads and writes."""
        return self.read_bytes + self.output_bytes


def layer_work(
    traced: TracedModel, shapes: ModelShapes, *, float_types: Sequence[torch.dtype]
) -> tuple[LayerWork, ...]:
    """The work of all layers in order; `float_types` is the type that each of them computes in."""
    return tuple(
        LayerWork(
            name=layer.name,
            flops=cost.flops,
            parameters=cost.parameters,
            read_bytes=sum(_bytes(shapes, value.name, dtype) for value in layer.node.all_input_nodes)
            + cost.parameters * dtype.itemsize,
            output_bytes=_bytes(shapes, layer.node.name, dtype),
        )
        for layer, cost, dtype in zip(traced.layers, shapes.layers, float_types, strict=True)
    )


def _bytes(shapes: ModelShapes, name: str, dtype: torch.dtype) -> int:
    """The bytes of a value in the type that a layer computes in."""
    info = shapes.values.get(name)
    if info is None:
        return 0
    if not info.dtype.is_floating_point:
        return info.num_bytes
    return info.num_bytes // info.dtype.itemsize * dtype.itemsize


def kept_bytes(traced: TracedModel, *, images: Sequence[int]) -> tuple[int, ...]:
    """The activation bytes that each layer is the first to keep for its backward pass, in float32."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    walk = _Keeping(traced, mode)
    with undisturbed(traced.model), torch.enable_grad(), mode:
        walk.walk(images_like(traced.model, images))
    return tuple(walk.kept.get(layer.node, 0) for layer in traced.layers)


class _Keeping(GraphWalk):
    """Runs a graph on fake tensors and notes what each step saves for the first time."""

    def __init__(self, traced: TracedModel, mode: FakeTensorMode) -> None:
        super().__init__(traced.model, graph=traced.graph, garbage_collect_values=False)
        self._traced = traced
        self._stand_ins = StandIns(
            lambda tensor: mode.from_tensor(tensor.detach()).requires_grad_(tensor.requires_grad), mode=mode
        )
        self._own = {storage_key(self._stand_ins.of(weight)) for weight in traced.model.parameters()}
        self._seen: dict[int, Tensor] = {}
        self.kept: dict[Node, int] = {}

    def run_node(self, n: Node) -> Any:
        def note(tensor: Tensor) -> Tensor:
            key = storage_key(tensor)
            if key not in self._own and key not in self._seen:
                self._seen[key] = tensor
                self.kept[n] = self.kept.get(n, 0) + tensor.untyped_storage().nbytes()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        value = self._traced.attribute(target)
        return self._stand_ins.of(value) if isinstance(value, Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._stand_ins.call(self._traced.attribute(target), args, kwargs)
