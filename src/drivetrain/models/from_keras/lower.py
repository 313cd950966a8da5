"""Builds the torch module of a Keras model from the graph that Keras records of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.activations import ACTIVATION_LAYERS
from drivetrain.models.from_keras.convolutions import CONVOLUTIONS
from drivetrain.models.from_keras.kept_layer import kept_layer
from drivetrain.models.from_keras.leaf import Form, KerasCall, Leaf, ToLeaf, WeightLink, take_weights
from drivetrain.models.from_keras.lowered import LoweredKeras, Step
from drivetrain.models.from_keras.names import names_of
from drivetrain.models.from_keras.normalisations import NORMALISATIONS
from drivetrain.models.from_keras.operations import OPERATIONS
from drivetrain.models.from_keras.random_layers import RANDOM_LAYERS
from drivetrain.models.from_keras.shapes_and_pools import SHAPES_AND_POOLS
from drivetrain.models.from_keras.walk import Visit, Walked

__all__ = ["GraphBuilder", "Lowering"]

_KNOWN: Mapping[str, ToLeaf] = {
    **ACTIVATION_LAYERS,
    **CONVOLUTIONS,
    **NORMALISATIONS,
    **RANDOM_LAYERS,
    **SHAPES_AND_POOLS,
}
# The layers whose marks for pipeline stages are read from this attribute; see pipeline/cutting/marks.py.
_STAGE_MARK = "_drivetrain_stage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    """The torch module of a Keras model, and where each of its weights belongs in it."""

    module: LoweredKeras
    links: tuple[WeightLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """A value of the torch graph: its number, the form that it is at hand in, and its rank."""

    index: int
    form: Form
    rank: int


class GraphBuilder:
    """Collects the layers of a walked model and the steps in which they run."""

    def __init__(self, walked: Walked, *, input_form: Form, input_rank: int) -> None:
        self._walked = walked
        self._names = names_of(list({id(visit.layer): visit for visit in walked.visits}.values()))
        self._calls = Counter(id(visit.layer) for visit in walked.visits)
        self._leaves: dict[str, Leaf] = {}
        self._steps: list[Step] = []
        self._next = 1
        self._newest = _Value(index=0, form=input_form, rank=input_rank)
        self._values: dict[int, _Value] = {}

    def prepend(self, name: str, module: nn.Module, *, rank: int) -> None:
        """A module between the images and the model's input, which it makes of this rank."""
        leaf = Leaf(module=module, form=self._newest.form, gives=Form.AS_IN_KERAS)
        self._newest = self._run(name, leaf, [self._newest], ranks=[rank])[0]

    def add_model(self) -> None:
        """The layers of the model itself."""
        self._values[self._walked.input] = self._newest
        for visit in self._walked.visits:
            self._visit(visit)
        self._newest = self._values[self._walked.result]

    def append(self, name: str, module: nn.Module) -> None:
        """A module after the model's output, whose channels are second for it."""
        leaf = Leaf(module=module, form=Form.CHANNELS_SECOND)
        self._newest = self._run(name, leaf, [self._newest], ranks=[self._newest.rank])[0]

    @property
    def last_module(self) -> nn.Module | None:
        """What computes the newest value, without modules before it in a sequence."""
        if not self._steps or self._newest.index not in self._steps[-1].outputs:
            return None
        module = self._leaves[self._steps[-1].layer].module
        return module[-1] if isinstance(module, nn.Sequential) else module

    def finished(self, sample_shape: tuple[int, ...]) -> Lowering:
        """The module with the weights of the Keras model; it returns the newest value, channels second."""
        if _move(self._newest, Form.CHANNELS_SECOND):
            self.append("output", nn.Identity())
        links = tuple(link.under(name) for name, leaf in self._leaves.items() for link in leaf.links)
        layers = {name: leaf.module for name, leaf in self._leaves.items()}
        module = LoweredKeras(
            layers,
            steps=_with_last_uses(self._steps, self._newest.index),
            result=self._newest.index,
            sample_shape=sample_shape,
            names_in_keras=self._names_in_keras(),
        )
        take_weights(module, links)
        return Lowering(module=module, links=links)

    def _names_in_keras(self) -> dict[str, str]:
        pairs = {visit.layer.name: self._names[id(visit.layer)] for visit in self._walked.visits}
        return {its: ours for its, ours in pairs.items() if its != ours}

    def _visit(self, visit: Visit) -> None:
        name = self._names[id(visit.layer)]
        leaf = self._leaves.get(name) or self._leaf(visit)
        inputs = [self._values[tensor] for tensor in visit.inputs]
        made = self._run(name, leaf, inputs, ranks=visit.output_ranks)
        self._values.update(zip(visit.outputs, made, strict=True))

    def _leaf(self, visit: Visit) -> Leaf:
        _require_float32(visit.layer)
        call = KerasCall(
            layer=visit.layer,
            shapes=visit.shapes,
            arguments=visit.arguments,
            is_repeated=self._calls[id(visit.layer)] > 1,
        )
        leaf = _known_leaf(call) or kept_layer(call)
        mark = vars(visit.layer).get(_STAGE_MARK)
        if mark is not None:
            vars(leaf.module)[_STAGE_MARK] = mark
        return leaf

    def _run(self, name: str, leaf: Leaf, inputs: Sequence[_Value], *, ranks: Sequence[int]) -> list[_Value]:
        self._leaves[name] = leaf
        form = _common_form(inputs) if leaf.form is None else leaf.form
        gives = leaf.gives or form
        made = [_Value(index=self._next + place, form=gives, rank=rank) for place, rank in enumerate(ranks)]
        self._next += len(made)
        step = Step(
            layer=name,
            inputs=tuple(value.index for value in inputs),
            moves=tuple(_move(value, form) for value in inputs),
            outputs=tuple(value.index for value in made),
        )
        self._steps.append(step)
        return made


def _move(value: _Value, form: Form) -> int:
    """How the channels of a value move to give it this form, as in `Step.moves`."""
    if value.rank <= 2 or value.form is form:
        return 0
    return 1 if form is Form.AS_IN_KERAS else -1


def _common_form(values: Sequence[_Value]) -> Form:
    """The form for a layer that takes any: it must be the same for all of its inputs."""
    has_one_rank = len({value.rank for value in values}) == 1
    is_second = any(value.form is Form.CHANNELS_SECOND for value in values)
    return Form.CHANNELS_SECOND if has_one_rank and is_second else Form.AS_IN_KERAS


def _known_leaf(call: KerasCall) -> Leaf | None:
    kind = type(call.layer)
    if kind.__module__.startswith("keras.src.ops."):
        operation = OPERATIONS.get(kind.__name__)
        return None if operation is None else operation(call)
    is_of_keras = kind.__module__.startswith("keras.")
    is_changed = getattr(call.layer, "lora_enabled", False) or getattr(call.layer, "quantization_mode", None)
    to_leaf = _KNOWN.get(kind.__name__) if is_of_keras and not is_changed and call.is_plain else None
    return None if to_leaf is None else to_leaf(call)


def _require_float32(layer: Any) -> None:
    kind = getattr(layer, "compute_dtype", "float32")
    if kind in ("float16", "bfloat16", "float64"):
        raise BadInputError(
            f"The Keras layer {layer.name} computes in {kind}; build the model with the dtype policy "
            "float32, and use --precision 16.32 to compute in 16 bits."
        )


def _with_last_uses(steps: Sequence[Step], result: int) -> list[Step]:
    """The steps, each of which drops the values that no later one reads."""
    kept = {result}
    reversed_steps = []
    for step in reversed(steps):
        last = tuple(dict.fromkeys(index for index in (*step.inputs, *step.outputs) if index not in kept))
        kept.update(step.inputs)
        reversed_steps.append(replace(step, done_with=last))
    return reversed_steps[::-1]
