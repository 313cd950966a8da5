"""The exact memory of a layout: its stages are built without memory, as `plan` does."""

import torch

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.move_small import move_small
from drivetrain.pipeline.cutting.settings import stage_settings
from drivetrain.pipeline.cutting.splits import stages_by_names
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.graph.shapes import find_shapes
from drivetrain.pipeline.memory.memory_prediction import device_peaks
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.precision import compute_type, is_cpu
from drivetrain.planner.search.layout import Layout
from drivetrain.planner.search.options import layout_fields, resets
from drivetrain.planner.search.subject import Subject
from drivetrain.schedules.actions import ScheduleError
from drivetrain.schedules.checker import check_schedule, live_micro_batches

__all__ = ["exact_peaks", "names_of", "outline_of_layout", "stage_plan_of"]


def names_of(subject: Subject, layout: Layout) -> tuple[str, ...]:
    """The first layers of stages 1, 2, ... as `--pipeline-splits` takes them."""
    return tuple(subject.traced.layers[first].name for first in layout.firsts)


def stage_plan_of(subject: Subject, layout: Layout) -> StagePlan:
    """The stages that a run with this layout would have."""
    traced, names = subject.traced, names_of(subject, layout)
    shapes = subject.shapes
    if layout.micro != subject.recipe.micro_batch_size:
        shapes = find_shapes(traced, image_shape=(layout.micro, *subject.image_shape))
    fields = resets() | layout_fields(subject.recipe, layout, names=names)
    recipe = subject.recipe.model_copy(update=fields)
    # The blocks of --recomputation are moved freely; stages that the user names begin where they are named.
    fixed = frozenset(names) if layout.devices_per_replica > 1 else frozenset()
    stage_of = move_small(traced, stage_of=stages_by_names(traced, names), shapes=shapes, fixed=fixed)
    return StagePlan(
        traced=traced,
        shapes=shapes,
        stage_of=stage_of,
        device_of=layout.device_of,
        schedule_name=layout.schedule,
        micro_batches=layout.accumulation,
        settings=stage_settings(recipe, live=live_micro_batches(layout.table())),
        firsts=names,
        recommended=names,
    )


def outline_of_layout(subject: Subject, layout: Layout) -> RunOutline | None:
    """The run with this layout, without memory; None if its stages cannot run."""
    names = names_of(subject, layout)
    fields = resets() | layout_fields(subject.recipe, layout, names=names)
    recipe = subject.recipe.model_copy(update=fields)
    plan = stage_plan_of(subject, layout) if layout.stages > 1 else None
    if plan is not None:
        try:
            check_schedule(layout.table(), edges=plan.edges())
            plan.cut()
        except (ScheduleError, BadInputError):
            return None
    return RunOutline(
        recipe=recipe, model=subject.model, plan=plan, images=(layout.micro, *subject.image_shape)
    )


def exact_peaks(subject: Subject, layout: Layout) -> tuple[int, ...] | None:
    """The peak memory of each device of a replica; None if the stages of this layout cannot run."""
    outline = outline_of_layout(subject, layout)
    if outline is None:
        return None
    recipe, plan = outline.recipe, outline.plan
    settings = stage_settings(recipe, live=(1,)) if plan is None else plan.settings
    dtypes: list[torch.dtype] = [getattr(torch, compute_type(recipe, each.precision)) for each in settings]
    return device_peaks(outline, settings=settings, compute_dtypes=dtypes, in_host=is_cpu(recipe.device))
