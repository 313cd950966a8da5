"""The work of each layer of a traced model for one micro-batch: FLOPs, and bytes read and written."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drivetrain.pipeline.graph.shapes import ModelShapes
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = ["LayerWork", "layer_work"]


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
