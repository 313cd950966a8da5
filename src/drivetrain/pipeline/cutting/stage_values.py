"""The values that are sent between stages, for an assignment of layers to stages, and a layer's weights."""

import operator
from collections.abc import Mapping, Sequence
from itertools import chain

from torch import Tensor, nn
from torch.fx import Node

from drivetrain.pipeline.graph.node_kinds import gives_several
from drivetrain.pipeline.graph.trace import TracedModel
from drivetrain.schedules.actions import Edge

__all__ = ["find_edges", "node_stages", "numbers_of_step", "taken_out_of", "values_needed"]

StageOf = Mapping[str, int] | Sequence[int]


def node_stages(traced: TracedModel, stage_of: StageOf) -> dict[Node, int]:
    """The stage of every layer's node, from one number per layer or from node names."""
    if isinstance(stage_of, Mapping):
        stages = {layer.node: stage_of[layer.node.name] for layer in traced.layers}
    else:
        stages = {layer.node: stage for layer, stage in zip(traced.layers, stage_of, strict=True)}
    for node in stages:
        source = taken_out_of(node)
        # A step that picks one tensor of a tuple runs in the stage that computes the tuple, because only
        # single tensors can be sent.
        if source is not None:
            stages[node] = stages[source]
    return stages


def taken_out_of(node: Node) -> Node | None:
    """The step that returned several tensors, if `node` picks one of them; else None."""
    if node.target is not operator.getitem or not isinstance(node.args[1], int | str):
        return None
    source = node.args[0]
    assert isinstance(source, Node)
    is_collection = source.op == "call_module" or gives_several(source) or taken_out_of(source) is not None
    return source if is_collection else None


def values_needed(
    traced: TracedModel, stages: Mapping[Node, int], *, count: int | None = None
) -> list[list[Node]]:
    """For every stage the values it receives, including the model's input, in graph order.

    `count` is the number of stages, if the last ones may have no layer.
    """
    needed: list[dict[Node, None]] = [{} for _ in range(count or max(stages.values()) + 1)]
    for node, stage in stages.items():
        for value in traced.sources(node):
            if stages.get(value) != stage:
                needed[stage][value] = None
    # The last stage returns the model's output, even if an earlier stage computes it.
    output = traced.nodes[traced.output]
    if stages.get(output) != len(needed) - 1:
        needed[-1][output] = None
    return [sorted(values, key=traced.positions.__getitem__) for values in needed]


def find_edges(
    traced: TracedModel, stages: Mapping[Node, int], *, count: int | None = None
) -> tuple[Edge, ...]:
    """The values sent between stages, in graph order and then by consumer; the model's input is not sent."""
    wanted = [
        (traced.positions[value], consumer, value)
        for consumer, values in enumerate(values_needed(traced, stages, count=count))
        for value in values
        if value in stages
    ]
    return tuple(
        Edge(value.name, stages[value], consumer)
        for _, consumer, value in sorted(wanted, key=lambda row: row[:2])
    )


def numbers_of_step(traced: TracedModel, node: Node) -> list[tuple[str, Tensor]]:
    """The parameters and buffers that a step uses: those of its module, and weights it reads directly."""
    module = traced.module_of(node)
    if module is not None:
        own = chain(module.named_parameters(), module.named_buffers())
        return [(f"{node.target}.{name}", tensor) for name, tensor in own]
    weights = [value for value in node.all_input_nodes if value.op == "get_attr"]
    named = [(str(value.target), traced.attribute(str(value.target))) for value in weights]
    return [(name, tensor) for name, tensor in named if isinstance(tensor, nn.Parameter)]
