"""Measures an update in the real program; the answer is kept for the same work on the same device."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from drivetrain.assembly.training_parts import assemble
from drivetrain.auto.speed import one_training, update_seconds
from drivetrain.console.reporter import Reporter
from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer
from drivetrain.core.progress import showing_progress
from drivetrain.data.splits import open_data
from drivetrain.devices.code_folder import code_key
from drivetrain.devices.device import Device
from drivetrain.plan.training_plan import PlannedRun, plan_training
from drivetrain.planner.devices.target import Target
from drivetrain.planner.measuring.part_clock import PartClock
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE
from drivetrain.ranks.threads import cores
from drivetrain.recipe.fields import fields_with
from drivetrain.recipe.layout import batch_of, rank_count, stage_count
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.schema import Recipe
from drivetrain.run.train import set_up_device

__all__ = [
    "MeasuredUpdate",
    "known_update",
    "measure_update",
    "one_process",
    "recall",
    "remember",
    "timing_marks",
]

# The fields that timings depend on, besides those with `Fact.WORK`.
_TIMED_BY = frozenset(
    {
        "capture",
        "compile",
        "data_dir",
        "data_placement",
        "dataset",
        "device_mapping",
        "half_type",
        "image_size",
        "model_params",
        "num_threads",
        "num_workers",
        "optimise_for",
        "optimizer_state_offloading",
        "pipeline_schedule",
        "pipeline_splits",
        "precision",
        "stage_options",
        "stages",
    }
)
_TIMED_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUpdate:
    """Seconds of a whole update of one process, and of the optimiser step in it."""

    update_s: float
    optimiser_s: float
    micro_batches: int

    @property
    def micro_batch_s(self) -> float:
        """Seconds of a forward and backward pass of one micro-batch, with its share of waiting for data."""
        return (self.update_s - self.optimiser_s) / self.micro_batches


def one_process(recipe: Recipe) -> Recipe:
    """The recipe whose updates are timed for one replica: in one process, all stages on one device.

    Ranks cannot capture their updates, and share the cores of a CPU, so the one process does the same.
    """
    alone = recipe.model_copy(update=one_training(recipe))
    ranks = rank_count(recipe)
    changes: dict[str, Any] = {}
    if stage_count(recipe) > 1:
        stages = stage_count(recipe)
        changes = {"stages": stages, "device_mapping": (0,) * stages, "pipeline_schedule": "sequential"}
        # On one device the layers are what counts, not where this machine would cut them.
        changes["split_by"] = "cost" if recipe.split_by == "time" else recipe.split_by
    if ranks > 1:
        changes["capture"] = "off"
        changes["num_threads"] = recipe.num_threads or max(1, cores() // ranks)
    batch = {"global_batch_size": None, "gradient_accumulation_count": _accumulation(recipe)}
    return alone.model_copy(update={**changes, **batch})


def _accumulation(recipe: Recipe) -> int:
    return batch_of(recipe).accumulation


def measure_update(planned: PlannedRun, *, target: Target, reporter: Reporter) -> MeasuredUpdate:
    """Measures an update as this device runs it, and keeps the answer in place of an earlier one."""
    alone = one_process(planned.recipe)
    marks = timing_marks(planned, alone, device=_device_of(target))
    found = _measured(alone, reporter=reporter)
    remember("update", marks, asdict(found))
    return found


def known_update(planned: PlannedRun, *, target: Target) -> MeasuredUpdate | None:
    """The time that an earlier command has measured for the same work on the same device."""
    marks = timing_marks(planned, one_process(planned.recipe), device=_device_of(target))
    known = recall("update", marks)
    try:
        return MeasuredUpdate(**known) if known else None
    except TypeError:
        return None


def _device_of(target: Target) -> Device:
    assert target.here is not None, "only a device of this machine can be measured"
    return target.here


def _measured(recipe: Recipe, *, reporter: Reporter) -> MeasuredUpdate:
    data = open_data(recipe)
    plan = plan_training(recipe, samples=len(data.train))
    with (
        set_up_device(recipe, ALONE) as device,
        showing_progress(reporter),
        reporter.showing("timing updates"),
    ):
        assembly = assemble(recipe, data=data, model=None, plan=plan, device=device)
        with closing(assembly.program.feed):
            update_s = update_seconds(assembly.program)
            optimiser_s = _optimiser_seconds(assembly.program, longest_s=update_s)
    return MeasuredUpdate(update_s=update_s, optimiser_s=optimiser_s, micro_batches=plan.batch.accumulation)


def _optimiser_seconds(program: TrainingProgram, *, longest_s: float) -> float:
    """Seconds of the optimiser step; a captured update runs once as single launches for this.

    Launched one by one, a step may take longer than inside a recording, hence the limit.
    """
    clock = PartClock(program.device)
    program.watch(clock)
    updates = len(program.records)
    for update in range(_TIMED_PARTS):
        program.run_update(update % updates)
    program.watch(None)
    return min(median(clock.optimiser_s), longest_s / 2)


def timing_marks(planned: PlannedRun, recipe: Recipe, *, device: Device) -> dict[str, Any]:
    """Everything that timings of a recipe may depend on."""
    shape = planned.shape
    return {
        "device": device.description,
        "code": code_key(),
        "torch": torch.__version__,
        "parameters": planned.totals.parameters,
        "images": [shape.channels, shape.image_size, shape.width],
        "classes": shape.num_classes,
        "samples": planned.training.epochs.samples,
        "micro_batch_size": recipe.micro_batch_size,
        "accumulation": recipe.gradient_accumulation_count,
        **recipe.model_dump(
            mode="json", include={*_TIMED_BY, *fields_with(Fact.WORK)}, exclude_defaults=True
        ),
        "model": recipe.model,
    }


def recall(kind: str, marks: Mapping[str, Any]) -> dict[str, Any]:
    """The kept answer; empty if there is none."""
    return read_answer(_path(kind, marks), kind, marks=marks)


def remember(kind: str, marks: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Keeps an answer in the user's cache folder."""
    keep_answer(_path(kind, marks), kind, marks=marks, answer=answer)


def _path(kind: str, marks: Mapping[str, Any]) -> Path | None:
    digest = hashlib.sha256(json.dumps(dict(marks), sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder()
    return None if folder is None else folder / "planner" / f"{kind}-{digest}.json"
