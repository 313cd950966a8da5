"""Chooses automatically where to split a model; deterministic, so that all ranks agree."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Literal

from torch.fx import Node

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.stage_values import numbers_of_step, taken_out_of
from drivetrain.pipeline.graph.aliases import find_changes_seen_elsewhere
from drivetrain.pipeline.graph.node_kinds import gives_several
from drivetrain.pipeline.graph.shapes import ModelShapes
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = ["FLOPS_PER_BYTE", "SplitBy", "check_stage_count", "choose_stages", "possible_splits"]

SplitBy = Literal["cost", "parameters", "time"]

# Assumes a link of 10 GB/s and a device of 1 TFLOP/s: sending a byte takes as long as 100 operations.
FLOPS_PER_BYTE = 100
_BYTES_PER_SECOND = 10e9
# The forward pass, the gradients of inputs and those of weights cost about the same.
_PASSES = 3
# A value is sent forward, its gradient back.
_TRIPS = 2


def choose_stages(
    traced: TracedModel,
    shapes: ModelShapes,
    *,
    stages: int,
    by: SplitBy,
    seconds: Sequence[float] | None = None,
) -> tuple[str, ...]:
    """The first layers of stages 1, 2, ...; by='time' needs the forward `seconds` of each layer."""
    starts = check_stage_count(traced, stages=stages, shapes=shapes)
    if by == "parameters":
        chosen = _by_parameters(shapes, stages, starts)
    elif by == "time":
        assert seconds is not None, "by='time' needs the seconds of every layer"
        layer_costs = [_PASSES * second for second in seconds]
        chosen = _Balance(traced, shapes, layer_costs, _TRIPS / _BYTES_PER_SECOND, starts).cut(stages)
    else:
        layer_costs = [float(_PASSES * layer.flops) for layer in shapes.layers]
        chosen = _Balance(traced, shapes, layer_costs, _TRIPS * FLOPS_PER_BYTE, starts).cut(stages)
    return tuple(traced.layers[start].name for start in chosen)


def check_stage_count(traced: TracedModel, *, stages: int, shapes: ModelShapes | None = None) -> list[int]:
    """The positions at which a stage may begin; raises BadInputError if there are too few."""
    starts = possible_splits(traced, shapes)
    if not 1 <= stages <= len(starts) + 1:
        faults = [f"{path} is one step: {fault}" for path, fault in traced.faults.items()]
        because = f", because {' and '.join(faults)}" if faults else ""
        raise BadInputError(
            f"--stages {stages}: this model can be split into 1 to {len(starts) + 1} stages{because}; "
            f"--stages {len(starts) + 1} works."
        )
    return starts


def possible_splits(traced: TracedModel, shapes: ModelShapes | None = None) -> list[int]:
    """The positions of layers that may begin a stage; any combination of them is allowed.

    Only with `shapes` is it known which steps of a user's code return something else than a tensor.
    """
    places = {layer.node: place for place, layer in enumerate(traced.layers)}
    others = () if shapes is None else _no_tensors(traced, shapes, places)
    kept_together = chain(_shared(traced), _collections(places), _changes(traced, places), others)
    refused = {start for first, last in kept_together for start in range(first + 1, last + 1)}
    return [start for start in range(1, len(traced.layers)) if start not in refused]


def _changes(traced: TracedModel, places: Mapping[Node, int]) -> Iterator[tuple[int, int]]:
    """From a value that is changed in place to the last step that sees the change through another value."""
    for first, last in find_changes_seen_elsewhere(traced):
        yield places.get(first, 0), places.get(last, len(places) - 1)


def _shared(traced: TracedModel) -> Iterator[tuple[int, int]]:
    """The first and last position of layers that share weights."""
    uses: dict[int, list[int]] = {}
    for place, layer in enumerate(traced.layers):
        for _, tensor in numbers_of_step(traced, layer.node):
            uses.setdefault(id(tensor), []).append(place)
    return ((found[0], found[-1]) for found in uses.values())


def _collections(places: Mapping[Node, int]) -> Iterator[tuple[int, int]]:
    """The positions of a step that returns several tensors and of the last step that reads one of them."""
    for node, place in places.items():
        users = [user for user in node.users if user in places]
        if not gives_several(node):
            users = [user for user in users if taken_out_of(user) is node]
        yield place, max((places[user] for user in users), default=place)


def _no_tensors(
    traced: TracedModel, shapes: ModelShapes, places: Mapping[Node, int]
) -> Iterator[tuple[int, int]]:
    """The positions of a step that returns no tensor, such as an object of several, and its last reader."""
    readers: dict[Node, list[int]] = {}
    for node, place in places.items():
        for source in traced.sources(node):
            readers.setdefault(source, []).append(place)
    for node, found in readers.items():
        if node in places and node.name not in shapes.values:
            yield places[node], max(found)


def _by_parameters(shapes: ModelShapes, stages: int, starts: Sequence[int]) -> list[int]:
    """Stage k begins at the layer at which the parameters and buffers so far reach k / stages of all.

    If that layer cannot begin a stage, the next one that can does.
    """
    reached = list(accumulate(layer.parameters + layer.buffers for layer in shapes.layers))
    chosen: list[int] = []
    for stage in range(1, stages):
        wanted = next(place for place, count in enumerate(reached) if count * stages >= stage * reached[-1])
        last = len(starts) - (stages - 1 - stage) - 1
        free = [start for start in starts[: last + 1] if not chosen or start > chosen[-1]]
        chosen.append(next((start for start in free if start >= wanted), free[-1]))
    return chosen


def _size(shapes: ModelShapes, node: Node) -> int:
    return shapes.values[node.name].num_bytes if node.name in shapes.values else 0


class _Balance:
    """Minimises the cost of the most expensive stage; among equal splits takes the one that sends least.

    The cost of a stage is that of its layers plus that of what it receives from earlier stages.
    """

    def __init__(
        self,
        traced: TracedModel,
        shapes: ModelShapes,
        layer_costs: Sequence[float],
        cost_per_byte: float,
        starts: Sequence[int],
    ) -> None:
        self._bounds = [0, *starts, len(traced.layers)]
        self._sums = [0.0, *accumulate(layer_costs)]
        self._cost_per_byte = cost_per_byte
        places = {layer.node: place for place, layer in enumerate(traced.layers)}
        sizes = {node: _size(shapes, node) for node in places}
        read = [
            [(places[value], sizes[value]) for value in traced.sources(layer.node) if value in places]
            for layer in traced.layers
        ]
        self._received = [self._received_from(read, first) for first in range(len(self._bounds) - 1)]

    def _received_from(self, read: Sequence[Sequence[tuple[int, int]]], first: int) -> list[int]:
        """Bytes that a stage beginning at a bound receives, for every bound at which it may end."""
        start = self._bounds[first]
        received: dict[int, int] = {}
        by_end = [0] * len(self._bounds)
        for end in range(first + 1, len(self._bounds)):
            for values in read[self._bounds[end - 1] : self._bounds[end]]:
                received.update((place, size) for place, size in values if place < start)
            by_end[end] = sum(received.values())
        return by_end

    def cut(self, stages: int) -> list[int]:
        # Two passes: first the least possible maximum cost, then the fewest bytes among splits that reach it.
        best = self._solve(stages, most=float("inf"), by_bytes=False)
        chosen = self._solve(stages, most=best[0], by_bytes=True)[1]
        return [self._bounds[bound] for bound in chosen]

    def _cost(self, first: int, end: int) -> float:
        layers = self._sums[self._bounds[end]] - self._sums[self._bounds[first]]
        return layers + self._cost_per_byte * self._received[first][end]

    def _solve(self, stages: int, *, most: float, by_bytes: bool) -> tuple[float, list[int]]:
        """Dynamic programming over the bounds: the least maximum, or the least bytes under a maximum."""
        count = len(self._bounds)
        table: list[tuple[float, list[int]] | None] = [None] * count
        table[0] = (0.0, [])
        for stage in range(stages):
            table = [self._extend(table, end, stage, most=most, by_bytes=by_bytes) for end in range(count)]
        solution = table[-1]
        assert solution is not None
        return solution

    def _extend(
        self,
        table: Sequence[tuple[float, list[int]] | None],
        end: int,
        stage: int,
        *,
        most: float,
        by_bytes: bool,
    ) -> tuple[float, list[int]] | None:
        best: tuple[float, list[int]] | None = None
        for first, known in enumerate(table[:end]):
            if known is None or (cost := self._cost(first, end)) > most:
                continue
            value = known[0] + self._received[first][end] if by_bytes else max(known[0], cost)
            # Strictly less: among equals the first one wins, so that all ranks choose the same split.
            if best is None or value < best[0]:
                best = (value, [*known[1], first] if stage else [])
        return best
