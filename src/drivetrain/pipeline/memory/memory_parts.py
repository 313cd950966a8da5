"""The modules whose memory a plan predicts: the stages of a run or its whole model, with their values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

from drivetrain.models.input_form import as_model_input
from drivetrain.models.memory_format import empty_images, memory_format_of
from drivetrain.passes.forward import Precision
from drivetrain.pipeline.cutting.cut import Cut, StageModule, called_module
from drivetrain.pipeline.cutting.settings import StageSettings
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.graph.shapes import undisturbed
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.pipeline.memory.weight_memory import LiveBytes, storage_key
from drivetrain.pipeline.runtime.channels import ValueSpec, memory_order, zeros_of
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.by_name import build_schedule

__all__ = ["Parts", "ValueFlow", "find_parts", "find_values", "run_schedule", "whole_model"]

# The layers whose weight gradients the zero-bubble schedule computes later.
_DEFERRED = (_ConvNd, nn.Linear)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFlow:
    """Every value that a stage receives or sends, including the images, as a tensor without memory.

    `kept` names the values that the stage that computes them also keeps for its own backward pass.
    `forward_bytes` is the peak of the forward pass of each stage, without its inputs.
    """

    values: dict[str, Tensor]
    kept: frozenset[str]
    forward_bytes: tuple[int, ...]

    @property
    def bytes_of(self) -> dict[str, int]:
        """Bytes of one micro-batch, by name."""
        return {name: value.nbytes for name, value in self.values.items()}

    def inputs_of(self, stage: StageModule) -> dict[str, Tensor]:
        """The inputs of a stage, in the order of its arguments."""
        return {name: self.values[name] for name in stage.stage_facts.inputs}


def find_values(cut: Cut, *, images: Tensor, compute_dtypes: Sequence[torch.dtype]) -> ValueFlow:
    """The values for micro-batches like `images`; `compute_dtypes` has each stage's autocast type."""
    values = {cut.input: _described(images, is_trained=False)}
    kept: set[str] = set()
    forward_bytes: list[int] = []
    for stage, dtype in zip(cut.stages, compute_dtypes, strict=True):
        found, own, most = _run(stage, [values[name] for name in stage.stage_facts.inputs], dtype)
        values |= {
            name: _described(value, is_trained=name not in cut.without_gradient)
            for name, value in found.items()
        }
        kept |= own
        forward_bytes.append(most)
    return ValueFlow(values=values, kept=frozenset(kept), forward_bytes=tuple(forward_bytes))


def _run(
    stage: StageModule, inputs: Sequence[Tensor], dtype: torch.dtype
) -> tuple[dict[str, Tensor], set[str], int]:
    """The outputs of a stage, which of them it keeps, and its peak, of a forward pass on fake tensors.

    It runs in evaluation mode, so that the stage does not change.
    """
    saved: set[int] = set()
    # Saved tensors are kept alive: a storage that is freed may lend its address, the key, to a later one.
    alive: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        saved.add(storage_key(tensor))
        alive.append(tensor)
        return tensor

    precision = Precision(compute_dtype=dtype, device_type="cpu")
    with FakeTensorMode(), undisturbed(stage):
        numbers = {name: _like(tensor) for name, tensor in _own_tensors(stage)}
        arguments = tuple(map(_like, inputs))
        with (
            LiveBytes(before=[*numbers.values(), *arguments]) as live,
            saved_tensors_hooks(note, lambda tensor: tensor),
            precision.autocast(),
        ):
            outputs = functional_call(stage, numbers, arguments)
    named = dict(zip(stage.stage_facts.outputs, outputs, strict=True))
    kept = {name for name, value in named.items() if storage_key(value) in saved}
    return named, kept, live.peak_bytes


def _own_tensors(stage: StageModule) -> Iterator[tuple[str, Tensor]]:
    return chain(stage.named_parameters(), stage.named_buffers())


def _like(tensor: Tensor) -> Tensor:
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(tensor.requires_grad)


def _described(value: Tensor, *, is_trained: bool) -> Tensor:
    """The value as it is sent: without gaps, its dimensions in the order in which they lie in memory."""
    spec = ValueSpec(tuple(value.shape), value.dtype, memory_order(value))
    made = zeros_of(spec, device="meta")
    return made.requires_grad_(is_trained and (value.is_floating_point() or value.is_complex()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A model as modules that run one after another, and the values they pass to each other."""

    recipe: Recipe
    modules: Sequence[nn.Module]
    inputs: Sequence[Mapping[str, Tensor]]
    kept: Sequence[Mapping[str, int]]
    forward_bytes: Sequence[int]
    deferred_bytes: Sequence[int]
    edges: Sequence[Edge]
    bytes_of: Mapping[str, int]
    schedule: Schedule
    settings: Sequence[StageSettings]
    compute_dtypes: Sequence[torch.dtype]


def find_parts(
    outline: RunOutline, settings: Sequence[StageSettings], compute_dtypes: Sequence[torch.dtype]
) -> Parts:
    """The stages of a run, or its whole model if it is not split."""
    if outline.plan is None:
        return whole_model(outline, settings, compute_dtypes)
    return _cut(outline.recipe, outline.plan, outline.images, settings, compute_dtypes)


def whole_model(
    outline: RunOutline, settings: Sequence[StageSettings], compute_dtypes: Sequence[torch.dtype]
) -> Parts:
    """The model in one piece, even if the run splits it."""
    images = empty_images(outline.images, memory_format=memory_format_of(outline.model), device="meta")
    return Parts(
        recipe=outline.recipe,
        modules=[outline.model],
        inputs=[{"images": images}],
        kept=[{}],
        forward_bytes=[0],
        deferred_bytes=[0],
        edges=(),
        bytes_of={"images": images.nbytes},
        schedule=_one_piece_schedule(outline.recipe),
        settings=settings,
        compute_dtypes=compute_dtypes,
    )


def run_schedule(outline: RunOutline) -> Schedule:
    """The schedule of an update; a model in one piece passes its micro-batches one after the other."""
    return _one_piece_schedule(outline.recipe) if outline.plan is None else outline.plan.schedule()


def _one_piece_schedule(recipe: Recipe) -> Schedule:
    return build_schedule("sequential", micro_batches=batch_of(recipe).accumulation, device_of=(0,))


def _cut(
    recipe: Recipe,
    plan: StagePlan,
    images: tuple[int, int, int, int],
    settings: Sequence[StageSettings],
    compute_dtypes: Sequence[torch.dtype],
) -> Parts:
    cut = plan.cut()
    memory_format = memory_format_of(plan.traced.model)
    flow = find_values(
        cut,
        images=as_model_input(
            plan.traced.model, empty_images(images, memory_format=memory_format, device="meta")
        ),
        compute_dtypes=compute_dtypes,
    )
    bytes_of = flow.bytes_of
    return Parts(
        recipe=recipe,
        modules=cut.stages,
        inputs=[flow.inputs_of(stage) for stage in cut.stages],
        kept=[
            {name: bytes_of[name] for name in stage.stage_facts.outputs if name in flow.kept}
            for stage in cut.stages
        ],
        forward_bytes=flow.forward_bytes,
        deferred_bytes=[
            _deferred(plan, stage, dtype) for stage, dtype in zip(cut.stages, compute_dtypes, strict=True)
        ],
        edges=cut.edges,
        bytes_of=bytes_of,
        schedule=plan.schedule(),
        settings=settings,
        compute_dtypes=compute_dtypes,
    )


def _deferred(plan: StagePlan, stage: StageModule, dtype: torch.dtype) -> int:
    """Bytes kept for deferred weight gradients: inputs of these layers and gradients of their outputs."""
    if plan.schedule_name != "zero-bubble":
        return 0
    held: dict[str, int] = {}
    for node in stage.graph.nodes:
        path = called_module(node)
        if path is not None and _is_deferred(stage.get_submodule(path)):
            held[f"gradient of {node.name}"] = _elements(plan, node.name) * dtype.itemsize
            held |= {
                value.name: _elements(plan, value.name) * dtype.itemsize for value in node.all_input_nodes
            }
    return sum(held.values())


def _is_deferred(module: nn.Module) -> bool:
    return any(isinstance(layer, _DEFERRED) for layer in module.modules())


def _elements(plan: StagePlan, value: str) -> int:
    return prod(plan.shapes.values[value].shape) if value in plan.shapes.values else 0
