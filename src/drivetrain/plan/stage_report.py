"""The stages and devices of a plan as plain values: FLOPs, messages, memory and idle time."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from drivetrain.core.factories import describe_failure
from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.cutting.settings import StageSettings, stage_settings
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.memory.memory_prediction import MemoryPrediction, predict_memory
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.pipeline.memory.stage_memory import StageMemory
from drivetrain.plan.precision import compute_type, is_cpu
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.checker import live_micro_batches
from drivetrain.schedules.simulator import COST_RULE, backward_costs, simulate
from drivetrain.schedules.traffic import messages

__all__ = ["LIBRARIES_BYTES", "RunMemory", "checkpoint_copies", "memory_of_run", "report_run", "stage_flops"]

# Memory of Python, torch and the other libraries in each rank, as measured by
# benchmarks/checkpoint_memory.py.
LIBRARIES_BYTES = 410_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMemory:
    """The predicted memory of a run, or why it cannot be predicted."""

    prediction: MemoryPrediction | None
    compute_dtypes: tuple[torch.dtype, ...]
    failure: str | None = None


def memory_of_run(outline: RunOutline, *, finds_savings: bool = True) -> RunMemory:
    """Predicts the memory of a run by running its layers without data."""
    settings = _settings(outline)
    dtypes = tuple(_compute_dtype(outline.recipe, each.precision) for each in settings)
    try:
        found = predict_memory(outline, settings=settings, compute_dtypes=dtypes, finds_savings=finds_savings)
    except Exception as error:
        return RunMemory(prediction=None, compute_dtypes=dtypes, failure=describe_failure(error))
    return RunMemory(prediction=found, compute_dtypes=dtypes)


def report_run(outline: RunOutline, memory: RunMemory | None = None) -> dict[str, Any]:
    """The parts of a plan about stages, their schedule and the memory of devices.

    If a layer needs real values, the memory is left out and `warnings` says so. `memory` is given if it is
    predicted already.
    """
    known = memory_of_run(outline) if memory is None else memory
    report: dict[str, Any] = {"warnings": []}
    if known.failure is not None:
        report["warnings"].append(f"The memory that --model needs cannot be predicted: {known.failure}")
    if outline.plan is not None and stage_count(outline.recipe) > 1:
        cut = outline.plan.cut()
        report["stages"] = _stages(outline.plan, cut, known.compute_dtypes, known.prediction)
        report["schedule"] = _schedule(outline.plan, cut)
        report["splits"] = {
            "by": outline.recipe.split_by,
            "used": list(outline.plan.firsts),
            "recommended": list(outline.plan.recommended),
        }
    if known.prediction is not None:
        report["memory"] = _memory(known.prediction, known.compute_dtypes, outline.recipe)
        if outline.plan is not None and stage_count(outline.recipe) == 1:
            report["memory"]["blocks"] = outline.plan.stages
    return report


def _settings(outline: RunOutline) -> tuple[StageSettings, ...]:
    return stage_settings(outline.recipe, live=[1]) if outline.plan is None else outline.plan.settings


def _compute_dtype(recipe: Recipe, precision: str) -> torch.dtype:
    """The compute type on the device that `--device` names, which need not be on this machine."""
    named: torch.dtype = getattr(torch, compute_type(recipe, precision))
    return named


def stage_flops(plan: StagePlan, cut: Cut) -> list[int]:
    """FLOPs of the forward pass of one image, per stage."""
    samples = plan.shapes.values[plan.traced.input].shape[0]
    total = [0] * plan.stages
    for stage, layer in zip(cut.stage_of, plan.shapes.layers, strict=True):
        total[stage] += layer.flops
    return [each // samples for each in total]


def _stages(
    plan: StagePlan, cut: Cut, dtypes: Sequence[torch.dtype], memory: MemoryPrediction | None
) -> list[dict[str, Any]]:
    schedule = plan.schedule()
    traffic = messages(schedule, cut.edges)
    values = {name: info.num_bytes for name, info in plan.shapes.values.items()}
    bytes_of = values if memory is None else memory.bytes_of
    live = live_micro_batches(schedule)
    flops = stage_flops(plan, cut)
    return [
        {
            "index": stage.stage_facts.index,
            "device": plan.device_of[stage.stage_facts.index],
            "first": stage.stage_facts.layer_names[0],
            "last": stage.stage_facts.layer_names[1],
            "layers": len(stage.stage_facts.layers),
            "parameters": sum(weight.numel() for weight in stage.parameters()),
            "flops": flops[stage.stage_facts.index],
            "sent_bytes": traffic.bytes_from_stage(stage.stage_facts.index, bytes_of=bytes_of),
            "live_micro_batches": live[stage.stage_facts.index],
            "recomputation": plan.settings[stage.stage_facts.index].recomputes,
            "optimizer_state_offloading": plan.settings[stage.stage_facts.index].offloads,
            "compute_type": _name(dtypes[stage.stage_facts.index]),
            **_stage_memory(memory, stage.stage_facts.index),
        }
        for stage in cut.stages
    ]


def _stage_memory(memory: MemoryPrediction | None, index: int) -> dict[str, Any]:
    if memory is None:
        return {}
    return {"peak_bytes": memory.stages[index].peak, "memory": _bytes(memory.stages[index])}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _schedule(plan: StagePlan, cut: Cut) -> dict[str, Any]:
    flops = stage_flops(plan, cut)
    backward = backward_costs(flops, recomputes=[each.recomputes for each in plan.settings])
    found = simulate(plan.schedule(), edges=cut.edges, forward_s=flops, backward_s=backward)
    return {
        "name": plan.schedule_name,
        "micro_batches": plan.micro_batches,
        "live": list(found.live),
        "bubble": found.bubble,
        "bubble_assumes": COST_RULE,
    }


def checkpoint_copies(memory: MemoryPrediction, recipe: Recipe) -> list[int]:
    """The bytes of the copy made for checkpoints on each device: on a CPU the first one holds it."""
    in_host = is_cpu(recipe.device)
    return [memory.checkpoint if in_host and index == 0 else 0 for index in range(len(memory.devices))]


def _memory(memory: MemoryPrediction, dtypes: Sequence[torch.dtype], recipe: Recipe) -> dict[str, Any]:
    """The memory of each device; on a CPU the first one also holds the copy made for checkpoints."""
    in_host, copies = is_cpu(recipe.device), checkpoint_copies(memory, recipe)
    return {
        "peak_bytes": max(device.peak + copy for device, copy in zip(memory.devices, copies, strict=True)),
        "devices": [
            {
                "device": index,
                **_bytes(device),
                **({"checkpoint": copies[index]} if copies[index] else {}),
                "peak": device.peak + copies[index],
                "savings": {name: by_device[index] for name, by_device in memory.savings.items()},
            }
            for index, device in enumerate(memory.devices)
        ],
        "compute_types": sorted(set(map(_name, dtypes))),
        **({"libraries_bytes": LIBRARIES_BYTES} if in_host else {}),
        **({"has_gaps": recipe.optimise_for != "memory"} if in_host else {}),
    }


def _bytes(memory: StageMemory) -> dict[str, int]:
    return {name: size for name, size in asdict(memory).items() if name != "peak"}
