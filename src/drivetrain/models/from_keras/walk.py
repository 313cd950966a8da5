"""Walks the graph that Keras records of a Functional or Sequential model, into models within the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Visit", "Walked", "functional_of", "walk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A call of a layer: the identities of the tensors that it reads and makes."""

    layer: Any
    around: tuple[str, ...]
    """The names of the models that the layer is inside of, without the outermost."""
    arguments: Any
    shapes: tuple[tuple[int | None, ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """All calls of a model; `input` and `result` are the tensors that it takes and returns."""

    visits: tuple[Visit, ...]
    input: int
    result: int


def functional_of(model: Any) -> Any | None:
    """The graph of a model that Keras runs by it; None for a layer, or a model with code of its own."""
    from keras.src.models import Functional, Sequential

    if isinstance(model, Sequential) and type(model).call is Sequential.call:
        return model._functional
    is_graph = isinstance(model, Functional) and type(model).call is Functional.call
    return model if is_graph else None


def walk(functional: Any) -> "Walked":
    """All calls of layers in the order in which Keras makes them."""
    steps = _Steps()
    inputs = steps.new(1)
    (result,) = steps.add(functional, around=(), inputs=inputs)
    return Walked(visits=tuple(steps.visits), input=inputs[0], result=result)


class _Steps:
    """Collects calls and numbers their tensors: a model that is called twice makes others in each call."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._made = 0

    def new(self, count: int) -> tuple[int, ...]:
        self._made += count
        return tuple(range(self._made - count, self._made))

    def add(self, functional: Any, *, around: tuple[str, ...], inputs: Sequence[int]) -> tuple[int, ...]:
        """Adds the calls of a model, and of the models in it; returns its outputs."""
        names = {id(tensor): name for tensor, name in zip(functional.inputs, inputs, strict=True)}
        for _, nodes in sorted(functional._nodes_by_depth.items(), reverse=True):
            for node in nodes:
                if not node.is_input:
                    outputs = self._add_node(node, around, names)
                    names.update({id(part): name for part, name in zip(node.outputs, outputs, strict=True)})
        return tuple(names[id(tensor)] for tensor in functional.outputs)

    def _add_node(self, node: Any, around: tuple[str, ...], names: Mapping[int, int]) -> tuple[int, ...]:
        read = node.arguments.keras_tensors
        inputs = tuple(names[id(tensor)] for tensor in read)
        inner = functional_of(node.operation)
        if inner is not None:
            return self.add(inner, around=(*around, node.operation.name), inputs=inputs)
        visit = Visit(
            layer=node.operation,
            around=around,
            arguments=node.arguments,
            shapes=tuple(tuple(tensor.shape) for tensor in read),
            inputs=inputs,
            outputs=self.new(len(node.outputs)),
            output_ranks=tuple(len(tensor.shape) for tensor in node.outputs),
        )
        self.visits.append(visit)
        return visit.outputs
