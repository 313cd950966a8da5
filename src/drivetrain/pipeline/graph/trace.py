"""Turns an unmodified model into a graph of named layers, without running any data through it."""

import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx import Node
from torch.fx.proxy import TraceError
from torch.nn.modules import module as torch_modules

from drivetrain.core.errors import BadInputError
from drivetrain.models.input_form import as_model_input
from drivetrain.models.kept_values import keeping_values
from drivetrain.models.module_values import MISSING, Place, moving_places
from drivetrain.models.modules import in_mode
from drivetrain.pipeline.graph.known_sizes import SizedTracer
from drivetrain.pipeline.graph.node_kinds import find_reads, mutated_input
from drivetrain.pipeline.graph.same_fault import modules_with_same_fault
from drivetrain.pipeline.graph.tracer import (
    CallRecord,
    LayerTracer,
    NeedsSizesError,
    UntraceableError,
    user_line,
)

__all__ = ["Layer", "TracedModel", "check_image_shape", "trace_model"]

# A module is small if the model has at least this many times its weights.
_SMALL_PARTS = 4

_GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


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
    image_shape: tuple[int, ...] | None = None
    """The only shape of images, without batch, that the graph is right for; None if it is for any size."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why large modules could not be traced, so that each is one layer, by their paths."""
    evaluation: "TracedModel | None" = None
    """The graph of evaluation mode, if it is another one; this graph is that of training mode."""

    @property
    def in_evaluation(self) -> "TracedModel":
        """The graph that evaluation takes."""
        return self if self.evaluation is None else self.evaluation

    def on(self, model: nn.Module) -> "TracedModel":
        """The same graphs for a copy of the model; this works because graphs refer to layers by name."""
        evaluation = None if self.evaluation is None else self.evaluation.on(model)
        return replace(self, model=model, evaluation=evaluation)

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


def trace_model(model: nn.Module, *, image_shape: Sequence[int] | None = None) -> TracedModel:
    """Traces a model with one image input; a module that cannot be traced becomes a single layer.

    If the code of the model, or of a large part of it, needs sizes as plain numbers, the graph is made for
    images of `image_shape` (channels, height, width) alone.
    """
    _refuse_global_hooks()
    # Tracing runs the code of modules once: what that does to their attributes is taken back.
    with keeping_values(model), _hiding_moving_numbers(model):
        collections = [place for place in _own_moving(model) if _is_collection(place.value)]
        before = [copy(place.value) for place in collections]
        traced = _trace_model(model, image_shape)
        for place, content in zip(collections, before, strict=True):
            if not _is_same(place.value, content):
                raise _refusal(UntraceableError(f"changes self.{place.key}"))
        return traced


def _own_moving(model: nn.Module) -> list[Place]:
    """The values of the model itself, not of modules inside it, that a pass changes."""
    return [place for place in moving_places(model) if "." not in place.name]


def _is_collection(value: object) -> bool:
    return isinstance(value, list | dict | set | deque)


def _is_same(one: Any, other: Any) -> bool:
    parts = [list(value.items()) if isinstance(value, dict) else list(value) for value in (one, other)]
    return len(parts[0]) == len(parts[1]) and all(map(_is_same_part, *parts))


def _is_same_part(one: Any, other: Any) -> bool:
    is_plain = isinstance(one, int | float | str) and isinstance(other, int | float | str)
    return bool(one == other) if is_plain else one is other or isinstance(one, tuple)


@contextmanager
def _hiding_moving_numbers(model: nn.Module) -> Iterator[None]:
    """Takes away numbers that a pass changes: the graph would keep what traced code reads of them.

    Modules that change them are not traced. Other code that reads one fails and is kept whole or refused.
    """
    hidden = [(place, place.value) for place in moving_places(model) if isinstance(place.value, int | float)]
    for place, _ in hidden:
        place.bind(MISSING)
    try:
        yield
    finally:
        for place, value in hidden:
            place.bind(value)


def _trace_model(model: nn.Module, image_shape: Sequence[int] | None) -> TracedModel:
    whole = _modules_with_state(model)
    faults: dict[str, str] = {}
    sizes: tuple[int, ...] | None = None
    # A failure names the innermost module at fault. A large one is tried once with known sizes; otherwise it
    # is kept whole in the next attempt. The loop ends, because `whole` grows.
    while True:
        try:
            graphs, differing = _trace_both_modes(model, whole, sizes)
        except Exception as error:
            path = getattr(error, "module_path", "")
            if not _is_small(model, path):
                is_first = sizes is None and _may_need_sizes(error)
                sizes = _input_sizes(model, image_shape) if is_first and image_shape is not None else None
                if sizes is not None:
                    continue
            if not path:
                raise _refusal(error) from error
            if not _is_small(model, path):
                faults[path] = _fault(error)
            failed = model.get_submodule(path)
            whole |= {failed, *modules_with_same_fault(model, failed, error, whole=whole)}
            continue
        small = {model.get_submodule(path) for path in differing if _is_small(model, path)}
        if not small:
            break
        whole |= small
    training, evaluation = graphs
    traced = replace(_traced(model, *training, image_shape=sizes), faults=faults)
    if not differing and _constants(*training) == _constants(*evaluation):
        return traced
    return replace(traced, evaluation=_traced(model, *evaluation, image_shape=sizes))


def _input_sizes(model: nn.Module, image_shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of an input without batch, as the forward of the model gets it."""
    return tuple(as_model_input(model, torch.empty(1, *image_shape, device="meta")).shape[1:])


def _modules_with_state(model: nn.Module) -> set[nn.Module]:
    """The modules whose own code changes values that they keep, as far as a rehearsal has found them.

    The trace runs such code once and drops it.
    """
    whole: set[nn.Module] = set()
    for place in moving_places(model):
        path, _, key = place.name.rpartition(".")
        if path:
            whole.add(model.get_submodule(path))
        elif not _is_collection(place.value):
            # A collection may be filled by hooks of layers, which are not traced; `trace_model` looks at it.
            raise _refusal(UntraceableError(f"changes self.{key}"))
    return whole


def _refuse_global_hooks() -> None:
    """Hooks of every module would run at other times, and not for modules that contain others."""
    if any(getattr(torch_modules, name) for name in _GLOBAL_HOOKS):
        raise BadInputError(
            "Hooks for all modules (as torch.nn.modules.module.register_module_forward_hook makes them) do "
            "not work with --stages or --recomputation; register hooks on the modules that need them."
        )


def _may_need_sizes(error: Exception) -> bool:
    return isinstance(error, NeedsSizesError) or not isinstance(error, UntraceableError)


def check_image_shape(images: Tensor, image_shape: tuple[int, ...]) -> None:
    """Refuses images of another shape than a graph with known sizes was made for."""
    if tuple(images.shape[1:]) != image_shape:
        known, given = (" x ".join(map(str, shape)) for shape in (image_shape, images.shape[1:]))
        raise BadInputError(
            "The code of --model uses the sizes of its input as plain numbers, so its stages only take "
            f"images of {known} (channels, height, width), not {given}; use one image size, or --stages 1."
        )


def _is_small(model: nn.Module, path: str) -> bool:
    """Whether a module that is hard to trace may stay whole, because the rest can still be split."""
    if not path:
        return False
    own, everything = (
        sum(weight.numel() for weight in module.parameters()) for module in (model.get_submodule(path), model)
    )
    return own * _SMALL_PARTS <= everything


_Graph = tuple[fx.Graph, Mapping[str, Tensor]]


def _trace_both_modes(
    model: nn.Module, whole: Set[nn.Module], sizes: tuple[int, ...] | None
) -> tuple[list[_Graph], list[str]]:
    """The graphs of training and evaluation mode with their constants, and the modules that differ."""
    graphs: list[_Graph] = []
    records = []
    for training in (True, False):
        tracer = LayerTracer(whole=whole) if sizes is None else SizedTracer(whole=whole, image_shape=sizes)
        with in_mode(model, training=training), _without_constants(model) as constants:
            graph = tracer.record(model)
        graphs.append((graph, constants))
        records.append(tracer.records)
    return graphs, _differing_modules(*records)


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


def _constants(graph: fx.Graph, constants: Mapping[str, Tensor]) -> list[tuple[object, ...]]:
    """The values of the constants in the order of the graph; two traces give them other names."""
    used = [constants[str(node.target)] for node in graph.nodes if str(node.target) in constants]
    return [(value.dtype, value.shape, value.tolist()) for value in used]


_Records = Mapping[tuple[str, int], CallRecord]


def _differing_modules(training: _Records, evaluation: _Records) -> list[str]:
    """The paths of the modules whose own code takes other steps in evaluation than in training."""
    pairs = [(key[0], record, evaluation[key]) for key, record in training.items() if key in evaluation]
    differing = [path for path, record, other in pairs if record.steps != other.steps]
    # Names come second: they are numbered through the whole graph, so an extra step would change the names in
    # later modules that are not at fault. The same holds after the first difference in names.
    return differing or [path for path, record, other in pairs if record.is_wired_unlike(other)][:1]


def _refusal(error: Exception) -> BadInputError:
    instead = getattr(error, "instead", "")
    return BadInputError(
        f"The code of --model cannot be split into stages, because {_fault(error)}; "
        f"{f'{instead}, or ' if instead else ''}move that step into a torch.nn.Module of its own, which is "
        "never split, and call it from the model."
    )


def _fault(error: Exception) -> str:
    """The line of the model's code that cannot be traced, and why."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    return f"{user_line(frames) or 'its forward'} {_reason(error)}"


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())
    if isinstance(error, UntraceableError):
        return words
    if isinstance(error, AttributeError) and error.name is not None:
        return f"reads {error.name}, which does not exist or changes from pass to pass"
    if isinstance(error, TraceError) and "iterated" in words:
        return "loops over a tensor or its sizes"
    if isinstance(error, TraceError) and "control flow" in words:
        return "branches on the values or sizes of tensors"
    return f"cannot be traced ({type(error).__name__}: {words})"


def _traced(
    model: nn.Module,
    graph: fx.Graph,
    constants: Mapping[str, Tensor],
    *,
    image_shape: tuple[int, ...] | None,
) -> TracedModel:
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
        image_shape=image_shape,
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
