"""The times of a recipe on a described device: what its peaks allow, divided by the share that is reached."""

from collections.abc import Sequence

import torch

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.graph.shapes import ModelShapes, find_shapes
from drivetrain.pipeline.graph.trace import TracedModel, trace_model
from drivetrain.plan.stage_report import RunMemory
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.costs import LayerTime, ModelTimes
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.layer_work import LayerWork, layer_work
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.recipe.layout import devices_per_replica, rank_count, stage_count
from drivetrain.recipe.schema import Recipe

__all__ = ["described_times", "pass_seconds"]

# The gradients of inputs and those of weights take as many operations as the forward pass each, and read and
# write as much.
_BACKWARD = 2
_FLOAT_BYTES = 4
# Optimisers that keep one number for each weight; the others keep two.
_ONE_STATE = ("sgd", "rmsprop", "lars")


def described_times(planned: PlannedRun, memory: RunMemory, device: DescribedDevice) -> UpdateTimes:
    """The times of an update on a described device."""
    work, types, notes = _work(planned, memory)
    captured = _is_captured(planned.recipe)
    layers = [
        LayerTime(
            name=each.name,
            forward_s=pass_seconds(each, device, dtype=dtype, is_captured=captured),
            backward_s=pass_seconds(each, device, dtype=dtype, times=_BACKWARD, is_captured=captured),
        )
        for each, dtype in zip(work, types, strict=True)
    ]
    batch = planned.training.batch
    model = ModelTimes(
        layers=layers,
        micro_batch_size=batch.micro,
        update_s=_optimiser_seconds(planned, memory, device),
        source="described",
    )
    again = model.forward_s if planned.recipe.recomputation else 0.0
    return UpdateTimes(
        passes_s=batch.accumulation * (model.forward_s + model.backward_s + again),
        last_backward_s=model.backward_s,
        update_s=model.update_s,
        source="described",
        layers=model,
        notes=notes,
    )


def pass_seconds(
    work: LayerWork,
    device: DescribedDevice,
    *,
    dtype: torch.dtype,
    times: int = 1,
    is_captured: bool = True,
) -> float:
    """Seconds of a pass through a layer that does its forward work `times` times."""
    name = str(dtype).removeprefix("torch.")
    peak = device.efficiency * device.flops.get(name, device.flops["float32"])
    bandwidth = device.bandwidth_efficiency * device.bytes_per_s
    device_s = max(work.flops / peak, work.moved_bytes / bandwidth) + device.launch_s
    return times * (device_s if is_captured else max(device_s, device.host_launch_s))


def _is_captured(recipe: Recipe) -> bool:
    """Whether a CUDA device would capture the updates, as far as the recipe alone tells."""
    in_pieces = stage_count(recipe) > 1 or recipe.recomputation
    holds_back = recipe.optimizer_state_offloading or recipe.fp_exceptions
    return recipe.capture != "off" and rank_count(recipe) == 1 and not in_pieces and not holds_back


def _work(
    planned: PlannedRun, memory: RunMemory
) -> tuple[Sequence[LayerWork], Sequence[torch.dtype], tuple[str, ...]]:
    outline = planned.outline
    try:
        traced, shapes = _traced(planned, outline.plan)
    except BadInputError:
        note = "--model cannot be traced, so the estimate counts its FLOPs, but not the bytes it moves."
        return [_whole_model(planned)], memory.compute_dtypes[:1], (note,)
    stage_of = (0,) * len(traced.layers) if outline.plan is None else outline.plan.stage_of
    types = [memory.compute_dtypes[stage] for stage in stage_of]
    return layer_work(traced, shapes, float_types=types), types, ()


def _traced(planned: PlannedRun, plan: StagePlan | None) -> tuple[TracedModel, ModelShapes]:
    if plan is not None:
        return plan.traced, plan.shapes
    images = planned.outline.images
    traced = trace_model(planned.outline.model, image_shape=images[1:])
    return traced, find_shapes(traced, image_shape=images)


def _whole_model(planned: PlannedRun) -> LayerWork:
    return LayerWork(
        name=planned.recipe.model,
        flops=planned.totals.flops * planned.training.batch.micro,
        parameters=planned.totals.parameters,
        read_bytes=planned.totals.parameters * _FLOAT_BYTES,
        output_bytes=0,
    )


def _optimiser_seconds(planned: PlannedRun, memory: RunMemory, device: DescribedDevice) -> float:
    """The optimiser step reads and writes weights and states, and reads and clears gradients."""
    moved = 2 * 2 * _FLOAT_BYTES * planned.totals.trainable
    if memory.prediction is not None:
        moved = max(
            2 * (each.parameters + each.optimiser_states + each.gradients)
            for each in memory.prediction.devices
        )
    step_s = moved / device.bytes_per_s / device.bandwidth_efficiency
    return step_s + _offloading_seconds(planned, device)


def _offloading_seconds(planned: PlannedRun, device: DescribedDevice) -> float:
    """With --optimizer-state-offloading, the states travel to the device and back in every update."""
    recipe = planned.recipe
    if not recipe.optimizer_state_offloading or device.kind == "cpu":
        return 0.0
    states = 1 if recipe.optimizer in _ONE_STATE else 2
    size = 2 * states * _FLOAT_BYTES * planned.totals.trainable / devices_per_replica(recipe)
    return size / device.host_bytes_per_s
