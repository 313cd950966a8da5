"""Predicts the memory of every stage and device of a run, and how much each memory option saves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from drivetrain.layers.draws.dropout import CounterDropout
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.pipeline.cutting.settings import StageSettings
from drivetrain.pipeline.memory.device_memory import DeviceCourse, StageNeeds, held_bytes, memory_courses
from drivetrain.pipeline.memory.memory_parts import Parts, find_parts, whole_model
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.pipeline.memory.stage_memory import StageMemory, pretended_device, stage_memory
from drivetrain.pipeline.memory.weight_memory import WeightBytes, weight_bytes
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.checker import live_micro_batches

__all__ = ["MemoryPrediction", "checkpoint_bytes", "device_peaks", "predict_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPrediction:
    """Bytes by stage and by device; `savings` says how far each memory option lowers the peak of each device.

    `checkpoint` is the copy of the whole training state that the first rank keeps in host memory. `courses`
    is the memory of each device over an update, without that copy.

    Each saving compares the option on all stages with the option on none, whatever the recipe asks for. It is
    negative if the option costs memory, as offloading buffers can for a model with few weights.
    """

    stages: tuple[StageMemory, ...]
    devices: tuple[StageMemory, ...]
    courses: tuple[DeviceCourse, ...]
    bytes_of: Mapping[str, int]
    savings: Mapping[str, tuple[int, ...]]
    checkpoint: int


def predict_memory(
    outline: RunOutline,
    *,
    settings: Sequence[StageSettings],
    compute_dtypes: Sequence[torch.dtype],
    finds_savings: bool = True,
) -> MemoryPrediction:
    """Predicts the memory of a run; `settings` and `compute_dtypes` have an entry per stage.

    `savings` is empty without `finds_savings`, which takes about half of the time.
    """
    parts = find_parts(outline.as_trained(), settings, compute_dtypes)
    stages = tuple(_stage(parts, index) for index in range(len(parts.modules)))
    needs = [_needs(parts, index, stages[index]) for index in range(len(stages))]
    on_device, in_host = (_weights(parts, offloads=offloads) for offloads in (False, True))
    offloading = {home: each.offloads for home, each in zip(parts.schedule.device_of, settings, strict=True)}
    weights = [(in_host if offloads else on_device)[home] for home, offloads in sorted(offloading.items())]
    devices = _devices(parts, needs, weights)
    savings: dict[str, tuple[int, ...]] = {}
    if finds_savings:
        savings["optimizer_state_offloading"] = _difference(
            _devices(parts, needs, on_device), _devices(parts, needs, in_host)
        )
    if finds_savings and outline.plan is not None:
        savings["recomputation"] = _recomputation_saving(outline, parts, needs, weights)
    if finds_savings and any(map(_has_dropout, parts.modules)):
        plain = find_parts(outline.as_trained(counter_dropout=False), settings, compute_dtypes)
        with_masks = _devices(parts, _needs_with_masks(parts, plain, needs), weights)
        savings["mask_free_dropout"] = _difference(with_masks, devices)
    return MemoryPrediction(
        stages=stages,
        devices=devices,
        courses=_courses(parts, needs, weights),
        bytes_of=parts.bytes_of,
        savings=savings,
        checkpoint=checkpoint_bytes(parts.recipe, on_device),
    )


def device_peaks(
    outline: RunOutline,
    *,
    settings: Sequence[StageSettings],
    compute_dtypes: Sequence[torch.dtype],
    in_host: bool,
) -> tuple[int, ...]:
    """The peak of each device; `in_host`: the first one also holds the copy made for checkpoints."""
    parts = find_parts(outline.as_trained(), settings, compute_dtypes)
    needs = [_needs(parts, index, _stage(parts, index)) for index in range(len(parts.modules))]
    offloading = {home: each.offloads for home, each in zip(parts.schedule.device_of, settings, strict=True)}
    either = {offloads: _weights(parts, offloads=offloads) for offloads in {False, *offloading.values()}}
    weights = [either[offloads][home] for home, offloads in sorted(offloading.items())]
    copy = checkpoint_bytes(parts.recipe, either[False]) if in_host else 0
    peaks = [device.peak for device in _devices(parts, needs, weights)]
    return (peaks[0] + copy, *peaks[1:])


def checkpoint_bytes(recipe: Recipe, weights: Sequence[WeightBytes]) -> int:
    """Weights and buffers, optimiser state, and the weight average (EMA), which is kept in float32."""
    if not recipe.checkpoints:
        return 0
    model = sum(each.parameters for each in weights)
    widening = 2 if recipe.precision == "16.16" else 1
    average = 0 if recipe.ema is None else widening * model
    return model + average + sum(each.optimiser_states for each in weights)


def _stage(parts: Parts, index: int) -> StageMemory:
    return stage_memory(
        parts.modules[index],
        parts.inputs[index],
        live_micro_batches=live_micro_batches(parts.schedule)[index],
        build_optimiser=partial(build_optimiser, parts.recipe),
        compute_dtype=parts.compute_dtypes[index],
        recomputes=parts.settings[index].recomputes,
        offloads_states=parts.settings[index].offloads,
        device=pretended_device(parts.recipe),
        compiled=parts.recipe.compile == "on",
    )


def _needs(parts: Parts, index: int, memory: StageMemory) -> StageNeeds:
    """The needs of one micro-batch, derived from the memory of all live micro-batches together."""
    inputs = {name: value.nbytes for name, value in parts.inputs[index].items()}
    live = live_micro_batches(parts.schedule)[index]
    recomputes = parts.settings[index].recomputes
    saved = memory.activations - live * sum(inputs.values())
    return StageNeeds(
        inputs=inputs,
        kept_outputs=dict(parts.kept[index]),
        saved=saved if recomputes else saved // live,
        forward=parts.forward_bytes[index],
        working=memory.working,
        deferred=parts.deferred_bytes[index],
        gradients=sum(
            parts.bytes_of[edge.value] for edge in parts.edges if edge.producer == index and edge.has_gradient
        ),
        recomputes=recomputes,
    )


def _weights(parts: Parts, *, offloads: bool) -> list[WeightBytes]:
    """The memory that each device holds for the whole training."""
    home = parts.schedule.device_of
    return [
        weight_bytes(
            [module for module, place in zip(parts.modules, home, strict=True) if place == device],
            build_optimiser=partial(build_optimiser, parts.recipe),
            offloads_states=offloads,
        )
        for device in range(parts.schedule.devices)
    ]


def _devices(
    parts: Parts, needs: Sequence[StageNeeds], weights: Sequence[WeightBytes]
) -> tuple[StageMemory, ...]:
    moments = held_bytes(parts.schedule, edges=parts.edges, needs=needs, bytes_of=parts.bytes_of)
    return tuple(
        StageMemory(
            parameters=own.parameters,
            gradients=own.gradients,
            optimiser_states=own.optimiser_states,
            activations=moment.activations,
            working=moment.working,
            peak=own.lasting + max(moment.total, own.update),
        )
        for own, moment in zip(weights, moments, strict=True)
    )


def _courses(
    parts: Parts, needs: Sequence[StageNeeds], weights: Sequence[WeightBytes]
) -> tuple[DeviceCourse, ...]:
    walks = memory_courses(parts.schedule, edges=parts.edges, needs=needs, bytes_of=parts.bytes_of)
    return tuple(
        DeviceCourse(lasting=own.lasting, actions=actions, update=own.update)
        for own, actions in zip(weights, walks, strict=True)
    )


def _difference(without: Sequence[StageMemory], everywhere: Sequence[StageMemory]) -> tuple[int, ...]:
    return tuple(more.peak - less.peak for more, less in zip(without, everywhere, strict=True))


def _recomputation_saving(
    outline: RunOutline, parts: Parts, needs: Sequence[StageNeeds], weights: Sequence[WeightBytes]
) -> tuple[int, ...]:
    everywhere = _devices(parts, [replace(need, recomputes=True) for need in needs], weights)
    if stage_count(parts.recipe) > 1:
        plain = [replace(need, recomputes=False) for need in needs]
        return _difference(_devices(parts, plain, weights), everywhere)
    # On one device the model is split only for recomputation; without that option it runs in one piece.
    settings = [replace(parts.settings[0], recomputes=False)]
    whole = whole_model(outline.as_trained(), settings, parts.compute_dtypes[:1])
    return _difference(_devices(whole, [_needs(whole, 0, _stage(whole, 0))], weights), everywhere)


def _has_dropout(module: nn.Module) -> bool:
    return any(isinstance(layer, CounterDropout) for layer in module.modules())


def _needs_with_masks(parts: Parts, plain: Parts, needs: Sequence[StageNeeds]) -> list[StageNeeds]:
    """What stages would need if dropout stored its masks."""
    return [
        _needs(plain, index, _stage(plain, index)) if _has_dropout(module) else needs[index]
        for index, module in enumerate(parts.modules)
    ]
