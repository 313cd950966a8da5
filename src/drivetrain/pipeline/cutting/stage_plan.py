"""Plans the stages of a model, before it is changed or moved to a device."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt

import torch
from torch import nn
from torch.fx import Node

from drivetrain.core.errors import BadInputError
from drivetrain.models.input_form import as_model_input
from drivetrain.pipeline.cutting.choose_stages import check_stage_count, choose_stages, possible_splits
from drivetrain.pipeline.cutting.cut import Cut, cut_model
from drivetrain.pipeline.cutting.marks import has_marks
from drivetrain.pipeline.cutting.move_small import move_small
from drivetrain.pipeline.cutting.settings import StageSettings, stage_settings
from drivetrain.pipeline.cutting.splits import resolve_names, stages_by_marks, stages_by_names
from drivetrain.pipeline.cutting.stage_values import find_edges, node_stages, values_needed
from drivetrain.pipeline.graph.node_kinds import inputs_kept_alive
from drivetrain.pipeline.graph.shapes import ModelShapes, find_shapes, measure_layer_seconds
from drivetrain.pipeline.graph.step_modes import runs_without_gradients
from drivetrain.pipeline.graph.trace import TracedModel, trace_model
from drivetrain.recipe.layout import device_of_stage, stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.actions import Edge, Schedule, ScheduleError
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.checker import check_schedule, live_micro_batches

__all__ = ["StagePlan", "check_cut", "plan_stages"]

Chooser = Callable[[Callable[[], tuple[str, ...]]], tuple[str, ...]]

# Checking takes about 0.03 ms per stage and micro-batch: 30 to 60 ms for 128 micro-batches on 8 devices.
# Stages x micro-batches; of a longer table a shorter one with the same stages is checked.
_MOST_PROVED_PASSES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """A model's stages: the stage of each layer, the device of each stage, and how each of them runs.

    `firsts` are the first layers of stages 1, 2, ... as the user asked or as chosen, `recommended` the
    automatic choice. With --recomputation and one stage, the recomputed blocks are stages of one device.
    """

    traced: TracedModel
    shapes: ModelShapes
    stage_of: tuple[int, ...]
    device_of: tuple[int, ...]
    schedule_name: str
    micro_batches: int
    settings: tuple[StageSettings, ...]
    firsts: tuple[str, ...]
    recommended: tuple[str, ...]

    @property
    def stages(self) -> int:
        return len(self.device_of)

    @property
    def devices(self) -> int:
        return max(self.device_of) + 1

    @property
    def other_cut(self) -> str | None:
        """The option for the automatic choice, if the user split the model in another way."""
        if self.firsts == self.recommended:
            return None
        return f"--pipeline-splits {' '.join(self.recommended)}"

    def schedule(self, micro_batches: int | None = None) -> Schedule:
        """The schedule of an update with this many micro-batches per replica."""
        return build_schedule(
            self.schedule_name, micro_batches=micro_batches or self.micro_batches, device_of=self.device_of
        )

    def cut(self) -> Cut:
        """The stages, with the layers that the model has now."""
        cut = cut_model(self.traced, stage_of=self.stage_of, shapes=self.shapes)
        return replace(cut, edges=_with_gradients(cut.edges, self.traced, self.shapes))

    def edges(self) -> tuple[Edge, ...]:
        """The values sent between stages, skip connections included."""
        edges = find_edges(self.traced, node_stages(self.traced, self.stage_of))
        return _with_gradients(edges, self.traced, self.shapes)

    def reads_data(self, device: int) -> bool:
        """Whether the stages of a device need images, or labels for the loss."""
        own = self.stages_on(device)
        needed = values_needed(self.traced, node_stages(self.traced, self.stage_of))
        images = self.traced.nodes[self.traced.input]
        return self.stages - 1 in own or any(images in needed[stage] for stage in own)

    def stages_on(self, device: int) -> tuple[int, ...]:
        """The stages that a device of a replica holds."""
        return tuple(stage for stage, home in enumerate(self.device_of) if home == device)


def check_cut(recipe: Recipe, model: nn.Module, *, image_shape: tuple[int, int, int]) -> None:
    """Refuses impossible stages cheaply, before any rank is started."""
    traced = trace_model(model, image_shape=image_shape)
    stage_of, _, _ = _asked_cut(recipe, traced, model)
    if stage_of:
        cut_model(traced, stage_of=stage_of)
    else:
        check_stage_count(traced, stages=stage_count(recipe))


def plan_stages(
    recipe: Recipe,
    model: nn.Module,
    *,
    image_shape: tuple[int, int, int],
    micro: int,
    accumulation: int,
    device: torch.device | None = None,
    choose: Chooser | None = None,
) -> StagePlan | None:
    """Plans the stages of a model; None if it is not split.

    `choose` gets a function that measures the best splits on `device`, and returns the splits for all ranks:
    measurements differ between ranks, so one must decide.
    """
    stages = stage_count(recipe)
    if stages == 1 and not recipe.recomputation:
        return None
    traced = trace_model(model, image_shape=image_shape)
    shapes = find_shapes(traced, image_shape=(micro, *image_shape))
    if stages == 1:
        return _blocks(recipe, traced, shapes, accumulation=accumulation)
    stage_of, firsts, fixed = _asked_cut(recipe, traced, model)
    recommended = firsts
    if not firsts or recipe.pipeline_splits:
        measure = partial(_measured_cut, traced, shapes, stages, (micro, *image_shape), device)
        recommended = _chosen_cut(recipe, traced, shapes, measure=measure, choose=choose)
    if not firsts:
        firsts = recommended
        stage_of = stages_by_names(traced, firsts)
    device_of = device_of_stage(recipe)
    schedule = build_schedule(recipe.pipeline_schedule, micro_batches=accumulation, device_of=device_of)
    plan = StagePlan(
        traced=traced,
        shapes=shapes,
        stage_of=move_small(traced, stage_of=stage_of, shapes=shapes, fixed=fixed),
        device_of=device_of,
        schedule_name=recipe.pipeline_schedule,
        micro_batches=accumulation,
        settings=stage_settings(recipe, live=live_micro_batches(schedule)),
        firsts=firsts,
        recommended=recommended,
    )
    _prove_schedule(plan, schedule)
    return plan


def _prove_schedule(plan: StagePlan, schedule: Schedule) -> None:
    """Refuses a schedule that would deadlock with the skip connections of this model."""
    most = max(1, _MOST_PROVED_PASSES // plan.stages)
    try:
        check_schedule(schedule if plan.micro_batches <= most else plan.schedule(most), edges=plan.edges())
    except ScheduleError as error:
        mapping = " ".join(map(str, plan.device_of))
        raise BadInputError(
            f"--pipeline-schedule {plan.schedule_name} cannot run with --device-mapping {mapping}"
            f": {error} --pipeline-schedule sequential works."
        ) from error


def _with_gradients(edges: tuple[Edge, ...], traced: TracedModel, shapes: ModelShapes) -> tuple[Edge, ...]:
    """Marks values that have no gradient to send back: whole numbers, and what `no_grad` computes."""

    def has_gradient(value: str) -> bool:
        info = shapes.values.get(value)
        # What is not a tensor cannot be sent; `cut_model` refuses it by name.
        is_number = info is not None and (info.dtype.is_floating_point or info.dtype.is_complex)
        return is_number and not _is_constant(traced, traced.nodes[value])

    return tuple(replace(edge, has_gradient=has_gradient(edge.value)) for edge in edges)


def _is_constant(traced: TracedModel, node: Node) -> bool:
    """Whether the model's own `no_grad` keeps gradients from a value.

    A step that gives back its input, or changes it in place, keeps the gradient that the input has.
    """
    if node.op == "placeholder":
        return True
    kept = inputs_kept_alive(node, module=traced.module_of(node), reads=traced.reads)
    return runs_without_gradients(node) and all(_is_constant(traced, value) for value in kept)


def _asked_cut(
    recipe: Recipe, traced: TracedModel, model: nn.Module
) -> tuple[tuple[int, ...], tuple[str, ...], frozenset[str]]:
    """The stage of each layer as names or marks say, the first layers, and the layers that may not move."""
    if recipe.pipeline_splits:
        firsts = resolve_names(traced, recipe.pipeline_splits)
        return stages_by_names(traced, firsts), firsts, frozenset(firsts)
    if not has_marks(model):
        return (), (), frozenset()
    stage_of = stages_by_marks(traced)
    marked = max(stage_of) + 1
    if marked != stage_count(recipe):
        raise BadInputError(
            f"--stages {stage_count(recipe)} does not match the model, whose modules are marked for {marked} "
            f"stages; --stages {marked} works."
        )
    firsts = tuple(traced.layers[stage_of.index(stage)].name for stage in range(1, marked))
    return stage_of, firsts, frozenset()


def _chosen_cut(
    recipe: Recipe,
    traced: TracedModel,
    shapes: ModelShapes,
    *,
    measure: Callable[[], tuple[str, ...]],
    choose: Chooser | None,
) -> tuple[str, ...]:
    if recipe.split_by != "time":
        return choose_stages(traced, shapes, stages=stage_count(recipe), by=recipe.split_by)
    return measure() if choose is None else choose(measure)


def _measured_cut(
    traced: TracedModel,
    shapes: ModelShapes,
    stages: int,
    images: tuple[int, int, int, int],
    device: torch.device | None,
) -> tuple[str, ...]:
    """The cut by the time that layers take; a copy is measured, so that the model stays where it is."""
    model = copy.deepcopy(traced.model)
    is_outline = any(weight.is_meta for weight in model.parameters())
    model = model.to_empty(device=device or "cpu") if is_outline else model.to(device)
    weight = next(model.parameters())
    zeros = as_model_input(model, torch.zeros(images, dtype=weight.dtype, device=weight.device))
    seconds = measure_layer_seconds(trace_model(model, image_shape=images[1:]), zeros)
    return choose_stages(traced, shapes, stages=stages, by="time", seconds=seconds)


def _blocks(recipe: Recipe, traced: TracedModel, shapes: ModelShapes, *, accumulation: int) -> StagePlan:
    """The recomputed blocks of a model that is not split: only their inputs are kept.

    With the square root of the number of layers as the number of blocks, the inputs of blocks and the
    activations of one block take about the same memory.
    """
    blocks = max(1, min(isqrt(len(traced.layers)), len(possible_splits(traced, shapes)) + 1))
    firsts = choose_stages(traced, shapes, stages=blocks, by="cost")
    stage_of = move_small(traced, stage_of=stages_by_names(traced, firsts), shapes=shapes)
    settings = stage_settings(recipe, live=(1,) * blocks)
    return StagePlan(
        traced=traced,
        shapes=shapes,
        stage_of=stage_of,
        device_of=(0,) * blocks,
        schedule_name="sequential",
        micro_batches=accumulation,
        settings=settings,
        firsts=firsts,
        recommended=firsts,
    )
