"""Moves steps that shrink a value, such as crops, to the stage that computes it, so that less is sent."""

import operator
from collections.abc import Iterator, Mapping, Sequence, Set

from torch import nn
from torch.fx import Node

from drivetrain.core.wording import words
from drivetrain.pipeline.cutting.stage_values import find_edges, node_stages
from drivetrain.pipeline.graph.node_kinds import mutated_input, name_of_call
from drivetrain.pipeline.graph.shapes import ModelShapes
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = ["is_movable", "move_small"]

_SMALLER_FUNCTIONS = words(
    "getitem narrow select pad interpolate to type half bfloat16 float mean amax amin center_crop "
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
)
# These stay in their stages: in another stage they might draw other random numbers.
_RANDOM_MODULES = (
    nn.modules.dropout._DropoutNd,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
    nn.RReLU,
)
_Stages = dict[Node, int]


def move_small(
    traced: TracedModel,
    *,
    stage_of: Mapping[str, int] | Sequence[int],
    shapes: ModelShapes,
    fixed: Set[str] = frozenset(),
) -> tuple[int, ...]:
    """The stage of every layer after moving; layers named in `fixed` stay where they are."""
    stages = node_stages(traced, stage_of)
    fixed_nodes = {layer.node for layer in traced.layers if layer.name in fixed}
    movable = [
        layer.node
        for layer in traced.layers
        if layer.node not in fixed_nodes and is_movable(traced, layer.node, shapes)
    ]
    moved: _Stages | None = stages
    while moved is not None:
        stages = moved
        moved = _better(traced, stages, shapes, movable)
    return tuple(stages[layer.node] for layer in traced.layers)


def _bytes(traced: TracedModel, stages: _Stages, shapes: ModelShapes) -> int:
    """The bytes that all stages together send forward for one batch."""
    sent = (edge.value for edge in find_edges(traced, stages))
    return sum(shapes.values[value].num_bytes for value in sent if value in shapes.values)


def _better(
    traced: TracedModel, stages: _Stages, shapes: ModelShapes, movable: Sequence[Node]
) -> _Stages | None:
    """The first move that reduces the bytes sent, or None. Each move reduces them, so the loop above ends.

    A move that would leave a stage without layers is not allowed.
    """
    now = _bytes(traced, stages, shapes)
    for group, home in _candidates(traced, stages, movable):
        moved = {**stages, **dict.fromkeys(group, home)}
        if len(set(moved.values())) == len(set(stages.values())) and _bytes(traced, moved, shapes) < now:
            return moved
    return None


def _candidates(
    traced: TracedModel, stages: _Stages, movable: Sequence[Node]
) -> Iterator[tuple[list[Node], int]]:
    """Groups of steps that read the same value of an earlier stage, the largest group of each value first.

    Moving one reader alone may not help while another stage still needs the whole value.
    """
    readers: dict[Node, list[Node]] = {}
    for node in movable:
        value = _only_foreign_source(traced, stages, node)
        if value is not None:
            readers.setdefault(value, []).append(node)
    for value, group in readers.items():
        yield group, stages[value]
        for stage in sorted({stages[node] for node in group}):
            yield [node for node in group if stages[node] == stage], stages[value]
        for node in group:
            yield [node], stages[value]


def _only_foreign_source(traced: TracedModel, stages: _Stages, node: Node) -> Node | None:
    """The only value that a step reads besides the images, if an earlier stage computes it; else None."""
    sources = [value for value in traced.sources(node) if value in stages]
    return sources[0] if len(sources) == 1 and stages[sources[0]] < stages[node] else None


def is_movable(traced: TracedModel, node: Node, shapes: ModelShapes) -> bool:
    """Whether a step may run in the stage that computes what it reads."""
    if node.name == traced.output or not _is_smaller(traced, node, shapes):
        return False
    module = traced.module_of(node)
    if mutated_input(node, module=module, reads=traced.reads) is not None:
        return False
    if module is None:
        return node.target is operator.getitem or name_of_call(node) in _SMALLER_FUNCTIONS
    has_numbers = any(True for _ in module.parameters()) or any(True for _ in module.buffers())
    return not has_numbers and not isinstance(module, _RANDOM_MODULES)


def _is_smaller(traced: TracedModel, node: Node, shapes: ModelShapes) -> bool:
    sources = [value.name for value in traced.sources(node) if value.name != traced.input]
    if node.name not in shapes.values or len(sources) != 1 or sources[0] not in shapes.values:
        return False
    return shapes.values[node.name].num_bytes < shapes.values[sources[0]].num_bytes
