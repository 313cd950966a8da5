"""Splits a traced model into stages, which keep the model's own layers under their names in the model."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx import Node
from torch.fx.node import map_arg

from drivetrain.core.errors import BadInputError
from drivetrain.layers.draws.functions import draws_at
from drivetrain.layers.draws.places import PlacedFunction
from drivetrain.pipeline.cutting.evaluation_stages import find_evaluation_stages
from drivetrain.pipeline.cutting.stage_values import (
    find_edges,
    node_stages,
    numbers_of_step,
    values_needed,
)
from drivetrain.pipeline.graph.aliases import check_changes_in_place, inputs_to_copy
from drivetrain.pipeline.graph.node_kinds import gives_several
from drivetrain.pipeline.graph.shapes import ModelShapes
from drivetrain.pipeline.graph.step_modes import StepModes, modes_of, wrapped
from drivetrain.pipeline.graph.trace import TracedModel
from drivetrain.schedules.actions import Edge

__all__ = ["Cut", "StageFacts", "StageModule", "called_module", "cut_model"]

# In the meta of a step: the module it calls, if it calls it through a function.
_CALLED = "called_module"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """The inputs, outputs and layers of a stage.

    `calls_before` counts, for modules that the model calls several times, the calls before this stage.
    """

    index: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[str, ...]
    parameter_names: tuple[str, ...]
    calls_before: Mapping[str, int]

    @property
    def layer_names(self) -> tuple[str, str]:
        """The first and the last layer."""
        return self.layers[0], self.layers[-1]


class StageModule(fx.GraphModule):
    """A part of a model: `forward(*inputs)` returns a tuple with one tensor per name in the facts' `outputs`.

    Its layers are the model's own objects, so changes of the model's weights, statistics and mode apply here.
    All facts are in one attribute, because the model's layers may use any other attribute name.
    """

    stage_facts: StageFacts

    @property
    def code(self) -> Any:
        """A layer of this name, or else what torch.fx has under it: the text of the forward pass."""
        own = self._modules.get("code", self._parameters.get("code"))
        return super().code if own is None else own


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A model in stages; every value is sent directly from its producer to each stage that reads it."""

    stages: tuple[StageModule, ...]
    edges: tuple[Edge, ...]
    input: str
    output: str
    stage_of: tuple[int, ...]
    """The stage of every layer of the traced model."""
    evaluation: "Cut | None" = None
    """The same stages in evaluation mode, if the model's code takes other steps there."""

    @property
    def in_evaluation(self) -> "Cut":
        """The stages that evaluation takes."""
        return self if self.evaluation is None else self.evaluation

    @property
    def without_gradient(self) -> frozenset[str]:
        """The values between stages for which no gradient is sent back."""
        return frozenset(edge.value for edge in self.edges if not edge.has_gradient)


def cut_model(
    traced: TracedModel, *, stage_of: Mapping[str, int] | Sequence[int], shapes: ModelShapes | None = None
) -> Cut:
    """Splits a model; `stage_of` has one stage per layer, or one per name of a layer's node."""
    _check_names(traced)
    stages = node_stages(traced, stage_of)
    _check_order(traced, stages)
    _check_shared_weights(traced, stages)
    check_changes_in_place(traced, stages)
    edges = find_edges(traced, stages)
    _check_tensors(traced, edges, shapes)
    modules = _build_stages(traced, stages, edges)
    evaluation = None if traced.evaluation is None else _cut_evaluation(traced, stages, modules)
    _add_unused(traced, modules)
    for stage in modules:
        stage.stage_facts = replace(stage.stage_facts, parameter_names=_parameter_names(traced, stage))
    return Cut(
        stages=modules,
        edges=edges,
        input=traced.input,
        output=traced.output,
        stage_of=tuple(stages[layer.node] for layer in traced.layers),
        evaluation=evaluation,
    )


def _cut_evaluation(traced: TracedModel, stages: Mapping[Node, int], modules: Sequence[StageModule]) -> Cut:
    """Splits the evaluation graph into the same stages, which also get the weights that only it uses."""
    evaluation = traced.in_evaluation
    places = find_evaluation_stages(traced, stages)
    check_changes_in_place(evaluation, places)
    edges = find_edges(evaluation, places, count=len(modules))
    _check_tensors(evaluation, edges, None)
    _add_evaluated(evaluation, places, modules)
    return Cut(
        stages=_build_stages(evaluation, places, edges, count=len(modules)),
        edges=edges,
        input=evaluation.input,
        output=evaluation.output,
        stage_of=tuple(places[layer.node] for layer in evaluation.layers),
    )


def _check_names(traced: TracedModel) -> None:
    """Refuses layers with names that stages, which hold them under their own names, use for themselves."""
    own = [*traced.model._modules, *traced.model._parameters, *traced.model._buffers]
    clash = next((name for name in own if hasattr(StageModule, name) and name != "code"), None)
    if clash is not None:
        raise BadInputError(
            f"A layer of --model is named {clash}, a name that its stages need for themselves; rename it, "
            f"for example to {clash}_layer."
        )


def _check_order(traced: TracedModel, stages: Mapping[Node, int]) -> None:
    missing = set(range(max(stages.values()) + 1)) - set(stages.values())
    if missing or min(stages.values()) < 0:
        raise BadInputError(
            f"--pipeline-splits leaves stage {min(missing, default=-1)} without a layer; use fewer stages."
        )
    for edge in find_edges(traced, stages):
        if edge.producer > edge.consumer:
            raise BadInputError(
                f"--pipeline-splits: stage {edge.consumer} reads {edge.value} of the later stage "
                f"{edge.producer}; number the stages in the order in which the layers run."
            )


def _check_shared_weights(traced: TracedModel, stages: Mapping[Node, int]) -> None:
    """Refuses weights and statistics that two stages would share."""
    home: dict[int, tuple[str, int]] = {}
    for layer in traced.layers:
        for name, tensor in numbers_of_step(traced, layer.node):
            owner, stage = home.setdefault(id(tensor), (layer.name, stages[layer.node]))
            if stage != stages[layer.node]:
                raise BadInputError(
                    f"--pipeline-splits: {name} is used by layer {owner} in stage {stage} and by layer "
                    f"{layer.name} in stage {stages[layer.node]}; put both into one stage."
                )


def _check_tensors(traced: TracedModel, edges: Sequence[Edge], shapes: ModelShapes | None) -> None:
    for edge in edges:
        is_known = shapes is not None and edge.value not in shapes.values
        if is_known or gives_several(traced.nodes[edge.value]):
            raise BadInputError(
                f"--pipeline-splits: stage {edge.consumer} would receive {edge.value}, which is not a single "
                "tensor; put it and the layers that read it into one stage."
            )


def _build_stages(
    traced: TracedModel, stages: Mapping[Node, int], edges: Sequence[Edge], *, count: int | None = None
) -> tuple[StageModule, ...]:
    """One module per stage; `count` is the number of stages, if the last ones may have no layer."""
    needed = values_needed(traced, stages, count=count)
    modules = []
    for index, inputs in enumerate(needed):
        sent = {edge.value for edge in edges if edge.producer == index}
        if index == len(needed) - 1:
            sent.add(traced.output)
        outputs = sorted((traced.nodes[name] for name in sent), key=traced.positions.__getitem__)
        own = [node for node in stages if stages[node] == index]
        stage = _StageGraph(traced, own, inputs).finish(outputs)
        stage.stage_facts = StageFacts(
            index=index,
            inputs=tuple(node.name for node in inputs),
            outputs=tuple(node.name for node in outputs),
            layers=tuple(layer.name for layer in traced.layers if stages[layer.node] == index),
            parameter_names=(),
            calls_before=_calls_before(traced, stages, index),
        )
        modules.append(stage)
    return tuple(modules)


def _parameter_names(traced: TracedModel, stage: StageModule) -> tuple[str, ...]:
    held = {id(parameter) for parameter in stage.parameters()}
    return tuple(name for name, parameter in traced.model.named_parameters() if id(parameter) in held)


class _StageGraph:
    """Copies the nodes of one stage; sizes and weights are read again wherever they are needed."""

    def __init__(self, traced: TracedModel, own: list[Node], inputs: Sequence[Node]) -> None:
        self._traced = traced
        self._graph = fx.Graph()
        self._copies: dict[Node, Node] = {}
        for value in inputs:
            self._copies[value] = self._graph.placeholder(value.name)
        # The stage works on copies of the inputs that it changes in place: other stages of the same device,
        # or the recomputation of this one, may read the originals. Placeholders must come first in a graph.
        changed = inputs_to_copy(traced, own)
        for value in inputs:
            if value in changed:
                self._copies[value] = self._graph.call_method("clone", (self._copies[value],))
        for node in own:
            self._copy(node)

    def _copy(self, node: Node) -> Node:
        if node not in self._copies:
            modes = None if node in self._traced.reads else modes_of(node)
            if modes is None:
                self._copies[node] = self._placed(self._graph.node_copy(node, self._copy), node)
            else:
                self._copies[node] = self._copy_in(modes, node)
        return self._copies[node]

    def _placed(self, copy: Node, original: Node) -> Node:
        """Gives a function that draws the place that it has in the model's code."""
        function = _placed_function(original)
        if function is not None:
            copy.op, copy.target = "call_function", function
        return copy

    def _copy_in(self, modes: StepModes, node: Node) -> Node:
        """A step that enters the modes of the model's code; a module becomes an argument of it."""
        args, kwargs = map_arg(node.args, self._copy), map_arg(node.kwargs, self._copy)
        function: Any = _placed_function(node) or node.target
        if isinstance(function, str):
            function = _method(function)
        if node.op == "call_module":
            module = self._graph.create_node("get_attr", node.target, name=f"{node.name}_module")
            function, args = _call, (module, *args)
        copy = self._graph.create_node(
            "call_function", wrapped(function, modes), args, kwargs, name=node.name
        )
        if node.op == "call_module":
            copy.meta[_CALLED] = str(node.target)
        return copy

    def finish(self, outputs: Sequence[Node]) -> StageModule:
        self._graph.output(tuple(self._copy(node) for node in outputs))
        taken = [node for node in self._graph.nodes if node.op in ("call_module", "get_attr")]
        root: dict[str, Any] = {str(node.target): self._traced.attribute(str(node.target)) for node in taken}
        stage = StageModule(root, self._graph, class_name="StageModule")
        stage.training = self._traced.model.training
        # GraphModule registers every plain tensor it is given as a saved buffer. Constants and other tensors
        # that the model does not save must stay out of the state dict.
        for node in taken:
            is_tensor = node.op == "get_attr" and isinstance(root[str(node.target)], Tensor)
            if is_tensor and not _is_saved(self._traced.model, str(node.target)):
                owner_path, _, name = str(node.target).rpartition(".")
                stage.get_submodule(owner_path)._non_persistent_buffers_set.add(name)
        return stage


def called_module(node: Node) -> str | None:
    """The path of the module that a step of a stage calls, or None."""
    return str(node.target) if node.op == "call_module" else node.meta.get(_CALLED)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _method(name: str) -> Callable[..., Any]:
    def method(value: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(value, name)(*args, **kwargs)

    return method


def _placed_function(node: Node) -> PlacedFunction | None:
    """A function that draws, with the place that it has in the model's code; None for any other step."""
    function = draws_at(node)
    return None if function is None else PlacedFunction(function, *node.meta["draw"])


def _is_saved(model: nn.Module, name: str) -> bool:
    owner_path, _, attribute = name.rpartition(".")
    owner = model.get_submodule(owner_path)
    is_buffer = attribute in owner._buffers and attribute not in owner._non_persistent_buffers_set
    return is_buffer or attribute in owner._parameters


def _calls_before(traced: TracedModel, stages: Mapping[Node, int], index: int) -> dict[str, int]:
    paths = [(layer.module_path, stages[layer.node]) for layer in traced.layers if layer.module_path]
    calls = Counter(path for path, _ in paths)
    before = Counter(path for path, home in paths if home < index)
    here = {path for path, home in paths if home == index}
    return {
        ".".join(filter(None, (path, inner))): before[path]
        for path, count in calls.items()
        if count > 1 and path in here
        for inner, _ in traced.model.get_submodule(path).named_modules()
    }


def _add_evaluated(
    evaluation: TracedModel, stages: Mapping[Node, int], modules: Sequence[StageModule]
) -> None:
    """Adds the modules and weights that training never uses to the stages that evaluate them."""
    for layer in evaluation.layers:
        held = _held(modules)
        stage = modules[stages[layer.node]]
        for name, tensor in numbers_of_step(evaluation, layer.node):
            if id(tensor) in held:
                continue
            if layer.module_path is not None:
                stage.add_submodule(layer.module_path, evaluation.model.get_submodule(layer.module_path))
                break
            _add_tensor(stage, name, tensor)


def _add_unused(traced: TracedModel, modules: Sequence[StageModule]) -> None:
    """Adds tensors that no layer uses to the last stage, so that all stages together save the whole model."""
    held = _held(modules)
    for name, tensor in [*traced.model.named_parameters(), *traced.model.named_buffers()]:
        if id(tensor) not in held and _is_saved(traced.model, name):
            _add_tensor(modules[-1], name, tensor)


def _held(modules: Sequence[StageModule]) -> set[int]:
    return {id(tensor) for stage in modules for tensor in chain(stage.parameters(), stage.buffers())}


def _add_tensor(stage: StageModule, name: str, tensor: Tensor) -> None:
    *path, attribute = name.split(".")
    owner: nn.Module = stage
    for part in path:
        if part not in owner._modules:
            owner.add_module(part, nn.Module())
        owner = owner.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        owner.register_parameter(attribute, tensor)
    else:
        owner.register_buffer(attribute, torch.as_tensor(tensor))
