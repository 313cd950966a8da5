"""A run's model as the modules that a plan counts: its stages, or the whole of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from drivetrain.pipeline.cutting.cut import StageModule
from drivetrain.pipeline.cutting.settings import StageSettings
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.pipeline.memory.value_flow import find_values
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.by_name import build_schedule

__all__ = ["Parts", "find_parts", "whole_model"]

_DEFERRED = (_ConvNd, nn.Linear)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A model as the modules that run one after another, and what they give each other."""

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
    """The stages of a run that is cut, or its whole model."""
    if outline.plan is None:
        return whole_model(outline, settings, compute_dtypes)
    return _cut(outline.recipe, outline.plan, outline.images, settings, compute_dtypes)


def whole_model(
    outline: RunOutline, settings: Sequence[StageSettings], compute_dtypes: Sequence[torch.dtype]
) -> Parts:
    """The model in one piece, whatever the run does with it."""
    images = torch.empty(outline.images, device="meta", memory_format=torch.channels_last)
    return Parts(
        recipe=outline.recipe,
        modules=[outline.model],
        inputs=[{"images": images}],
        kept=[{}],
        forward_bytes=[0],
        deferred_bytes=[0],
        edges=(),
        bytes_of={"images": images.nbytes},
        schedule=build_schedule("sequential", micro_batches=1, device_of=(0,)),
        settings=settings,
        compute_dtypes=compute_dtypes,
    )


def _cut(
    recipe: Recipe,
    plan: StagePlan,
    images: Sequence[int],
    settings: Sequence[StageSettings],
    compute_dtypes: Sequence[torch.dtype],
) -> Parts:
    cut = plan.cut()
    flow = find_values(cut, images=images, compute_dtypes=compute_dtypes)
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
    """What layers with weights that are left for later hold: their inputs, and the gradients of outputs."""
    if plan.schedule_name != "zero-bubble":
        return 0
    held: dict[str, int] = {}
    for node in stage.graph.nodes:
        if node.op == "call_module" and _is_deferred(stage.get_submodule(str(node.target))):
            held[f"gradient of {node.name}"] = _elements(plan, node.name) * dtype.itemsize
            held |= {
                value.name: _elements(plan, value.name) * dtype.itemsize for value in node.all_input_nodes
            }
    return sum(held.values())


def _is_deferred(module: nn.Module) -> bool:
    return any(isinstance(layer, _DEFERRED) for layer in module.modules())


def _elements(plan: StagePlan, value: str) -> int:
    return prod(plan.shapes.values[value].shape) if value in plan.shapes.values else 0
