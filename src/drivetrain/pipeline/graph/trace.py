"""Turns an unmodified model into a graph of named layers, without running any data through it."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import Tensor, fx, nn
from torch.fx import Node
from torch.fx.proxy import TraceError

from drivetrain.core.errors import BadInputError
from drivetrain.models.modules import in_mode
from drivetrain.pipeline.graph.node_kinds import find_reads, mutated_input
from drivetrain.pipeline.graph.same_fault import modules_with_same_fault
from drivetrain.pipeline.graph.tracer import CallRecord, LayerTracer, UntraceableError, user_line

__all__ = ["Layer", "TracedModel", "trace_model"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One step that returns tensors: a module, named by its path, or a function, named by its graph node."""

    name: str
    """Unique: the second call of a module is named by its path and '#2', the third by '#3' and so on."""
    node: Node
    module_path: str | None
    """None for a function."""
    scope: str
    """The path of the module whose code contains the step; '' is the model itself."""

    @property
    def path(self) -> str:
        return self.scope if self.module_path is None else self.module_path


@dataclass(frozen=True, kw_only=True)
class TracedModel:
    """A model and its graph, which refers to the model's own modules and weights (no copies)."""

    model: nn.Module
    graph: fx.Graph
    layers: tuple[Layer, ...]
    input: str
    """The name of the value that holds the images."""
    reads: Mapping[Node, None]
    """Steps that read sizes, types or devices; they belong to no stage and are repeated where needed."""
    constants: Mapping[str, Tensor]
    """Constant tensors that the model's code creates in every forward pass."""
    nodes: Mapping[str, Node]
    positions: Mapping[Node, int]

    @property
    def output(self) -> str:
        """The name of the value that the model returns."""
        return self.result_node.all_input_nodes[0].name

    @property
    def result_node(self) -> Node:
        """The graph's last node, which only returns the output."""
        node: Node = next(iter(reversed(self.graph.nodes)))
        return node

    def attribute(self, target: str) -> Any:
        """The module, weight or constant behind a dotted name."""
        return self.constants[target] if target in self.constants else attrgetter(target)(self.model)

    def module_of(self, node: Node) -> nn.Module | None:
        """The module that a step calls."""
        return self.attribute(str(node.target)) if node.op == "call_module" else None

    def sources(self, node: Node) -> tuple[Node, ...]:
        """The values that a step reads, directly or only for their sizes, in graph order; without weights."""
        found: dict[Node, None] = {}
        for value in node.all_input_nodes:
            if value in self.reads:
                found.update(dict.fromkeys(self.sources(value)))
            elif value.op != "get_attr":
                found[value] = None
        return tuple(sorted(found, key=self.positions.__getitem__))


def trace_model(model: nn.Module) -> TracedModel:
    """Traces a model with one image input; a module that cannot be traced becomes a single layer."""
    whole: set[nn.Module] = set()
    # Each failure names the innermost module at fault; it is kept whole in the next attempt. The loop ends,
    # because a module that is kept whole is not looked into again.
    while True:
        try:
            graph, constants = _trace_both_modes(model, whole)
        except Exception as error:
            path = getattr(error, "module_path", "")
            if not path:
                raise _refusal(error) from error
            failed = model.get_submodule(path)
            whole |= {failed, *modules_with_same_fault(model, failed, error, whole=whole)}
            continue
        return _traced(model, graph, constants)


def _trace_both_modes(model: nn.Module, whole: set[nn.Module]) -> tuple[fx.Graph, dict[str, Tensor]]:
    """The graph in training mode; raises if evaluation mode gives another one."""
    recorded = []
    # Training comes last: its graph and constants are the ones that are returned.
    for training in (False, True):
        tracer = LayerTracer(whole=frozenset(whole))
        with in_mode(model, training=training), _without_constants(model) as constants:
            graph = tracer.record(model)
        recorded.append(tracer.records)
    _compare_modes(*recorded)
    return graph, constants


@contextmanager
def _without_constants(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Removes the constants that torch.fx stores as attributes of the model while it traces."""
    before = set(vars(model))
    constants: dict[str, Tensor] = {}
    try:
        yield constants
    finally:
        for name in set(vars(model)) - before:
            constants[name] = vars(model).pop(name)


_Records = Mapping[tuple[str, int], CallRecord]


def _compare_modes(evaluation: _Records, training: _Records) -> None:
    """Raises for the innermost call that takes other steps in training than in evaluation."""
    # The steps without value names come first: names are numbered through the whole graph, so one extra step
    # would change the names in later modules that are not at fault.
    for attributes in (("steps",), ("exact_steps", "result")):
        for key, record in training.items():
            other = evaluation.get(key)
            if other is None or all(getattr(record, name) == getattr(other, name) for name in attributes):
                continue
            error = UntraceableError("depends on self.training")
            error.module_path = key[0]  # type: ignore[attr-defined]
            error.line = user_line([_first_difference(record, other)])  # type: ignore[attr-defined]
            raise error


def _first_difference(record: CallRecord, other: CallRecord) -> tuple[str, int]:
    steps = zip(record.steps, record.exact_steps, record.lines, strict=True)
    others = [*zip(other.steps, other.exact_steps, strict=True)]
    for index, (step, exact, line) in enumerate(steps):
        if index >= len(others) or (step, exact) != others[index]:
            return line
    return (other.lines[len(record.lines) :] or record.lines)[0]


def _refusal(error: Exception) -> BadInputError:
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    line = getattr(error, "line", "") or user_line(frames) or "its forward"
    return BadInputError(
        f"The code of --model cannot be split into stages, because {line} {_reason(error)}; move that step "
        "into a torch.nn.Module of its own, which is never split, and call it from the model."
    )


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())
    if isinstance(error, UntraceableError):
        return words
    if isinstance(error, TraceError) and "iterated" in words:
        return "loops over a tensor or its sizes"
    if isinstance(error, TraceError) and "control flow" in words:
        return "branches on the values or sizes of tensors"
    return f"cannot be traced ({type(error).__name__}: {words})"


def _traced(model: nn.Module, graph: fx.Graph, constants: Mapping[str, Tensor]) -> TracedModel:
    reads = find_reads(graph)
    if not isinstance(next(iter(reversed(graph.nodes))).args[0], Node):
        raise BadInputError("A --model that is split into stages must return one tensor, not a collection.")
    traced = TracedModel(
        model=model,
        graph=graph,
        layers=_layers(graph, reads),
        input=next(node.name for node in graph.nodes if node.op == "placeholder"),
        reads=reads,
        constants=constants,
        nodes={node.name: node for node in graph.nodes},
        positions={node: index for index, node in enumerate(graph.nodes)},
    )
    _read_after_changes(traced)
    return traced


def _read_after_changes(traced: TracedModel) -> None:
    """Makes later readers of a tensor that is changed in place depend on the step that changes it."""
    for node in traced.graph.nodes:
        changed = mutated_input(node, module=traced.module_of(node), reads=traced.reads)
        for user in list(changed.users) if changed is not None else ():
            if changed is not None and traced.positions[user] > traced.positions[node]:
                user.replace_input_with(changed, node)


def _layers(graph: fx.Graph, reads: Mapping[Node, None]) -> tuple[Layer, ...]:
    layers: list[Layer] = []
    uses: dict[str, int] = {}
    for node in graph.nodes:
        if node.op not in ("call_module", "call_function", "call_method") or node in reads:
            continue
        path = str(node.target) if node.op == "call_module" else None
        name = node.name if path is None else path
        uses[name] = uses.get(name, 0) + 1
        unique = name if uses[name] == 1 else f"{name}#{uses[name]}"
        layers.append(Layer(unique, node, path, node.meta.get("scope", "")))
    return tuple(layers)
