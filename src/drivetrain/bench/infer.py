"""`bench infer`: latency and throughput of a model in evaluation mode, for each batch size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter
from typing import Any

import torch
from torch import nn

from drivetrain.bench.clock import StepClock, counting
from drivetrain.bench.energy import energy_counter, joules_between
from drivetrain.bench.machine import describe_machine, measure_peak
from drivetrain.bench.model_work import ModelWork, count_work
from drivetrain.bench.ready_model import (
    InferSettings,
    OpenedModel,
    ReadyModel,
    first_call_s,
    make_ready,
    open_model,
)
from drivetrain.bench.repetition import Repetition, spread_notes
from drivetrain.bench.result import BenchResult, Entry, joules_per_image, one_median, percentiles
from drivetrain.bench.subject import asked_values
from drivetrain.console.reporter import Reporter
from drivetrain.data.preprocess import Preparation
from drivetrain.devices.device import Device
from drivetrain.inference.model.optimised import declined_recordings
from drivetrain.passes.forward import Forward, Precision
from drivetrain.program.capture import RunAhead
from drivetrain.ranks.collective_timeout import FIRST_UPDATE_TIMEOUT_S
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.train import set_up_device

__all__ = ["InferSettings", "measure_inference"]

_BEGINS = {
    "device": "preprocessed images on the device",
    "host": "images that are made on the host for every batch, moved and preprocessed,",
}
# With --seconds, so many single batches tell the latency: more would take as long as the repeat again.
_MOST_WAITED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The measurement at one batch size, of all replicas; `compile_s` is None without compilation."""

    batch: int
    repeats: list[dict[str, Any]]
    peak_memory_bytes: int
    compile_s: float | None


def measure_inference(
    resolved: ResolvedRecipe,
    settings: InferSettings,
    *,
    reporter: Reporter,
    command: str,
    group: ReplicaGroup = ALONE,
) -> BenchResult:
    """Measures the model alone, as one of its replicas; its logits stay on the device."""
    recipe = resolved.recipe
    group.set_timeout(FIRST_UPDATE_TIMEOUT_S)
    with set_up_device(recipe, group) as device:
        subject = open_model(resolved, settings, device=device, reporter=reporter)
        compiles = recipe.compile == "on" or (recipe.compile == "auto" and not device.is_cpu)
        declined_before = declined_recordings() if compiles else 0
        with reporter.showing("compiling" if compiles else "first batch"):
            ready = make_ready(subject, settings, compiles=compiles)
        measured = _measure(ready, subject, settings, reporter, group=group)
        is_captured = ready.is_captured or (
            ready.is_compiled and records_compiled(device) and declined_recordings() == declined_before
        )
        states = {
            "compiled": "yes" if ready.is_compiled else "no",
            "captured": "yes" if is_captured else "no",
        }
        work = _work(subject, ready.model)
        # On all ranks at the same time: ranks on a CPU share its cores, so their peaks add up to the CPU's.
        with reporter.showing("measuring the device's peak"):
            peaks = group.gather(measure_peak(device, dtype=subject.precision.compute_dtype))
        peak_tflops = sum(peak.tflops for peak in peaks)
        entries = [
            _entry(found, replicas=group.size, work=work, peak_tflops=peak_tflops, states=states)
            for found in measured
        ]
        return BenchResult(
            benchmark="infer",
            command=command,
            machine=describe_machine(str(device.torch_device)),
            workload=_workload(recipe, subject.preprocess),
            settings=_settings(recipe, settings, subject.precision, group=group),
            recipe=asked_values(recipe),
            entries=entries,
            peak={
                "dtype": peaks[0].dtype,
                "tflops": peak_tflops,
                "copy_gb_per_second": sum(peak.copy_gb_per_second for peak in peaks),
                **({} if group.size == 1 else {"devices": group.size}),
            },
            model=work.to_json(),
            notes=[
                *spread_notes(entries, settings.repetition),
                f"measured from {_BEGINS[settings.data]} to logits on the device; peak memory is that of the "
                "whole process",
                *_compile_notes(recipe, measured),
                *ready.notes,
            ],
        )


def _compile_notes(recipe: Recipe, measured: Sequence[_Measured]) -> list[str]:
    is_auto = recipe.compile == "auto"
    notes = ["compile auto: compiled on accelerators, not on a CPU"] if is_auto else []
    times = [
        f"{found.compile_s:.1f} s for batch {found.batch}"
        for found in measured
        if found.compile_s is not None
    ]
    return [*notes, f"compiling took {', '.join(times)}"] if times else notes


def _work(subject: OpenedModel, measured: nn.Module) -> ModelWork:
    """The work of the model as it is measured; parameters are those of the model as it is trained."""
    preprocess = subject.preprocess
    shape = (preprocess.channels, preprocess.height, preprocess.width)
    dtype = subject.precision.compute_dtype
    whole = count_work(subject.model, image_shape=shape, dtype=dtype)
    if measured is subject.model:
        return whole
    work = count_work(measured, image_shape=shape, dtype=dtype)
    return replace(work, parameters=whole.parameters, trainable=whole.trainable)


def _measure(
    ready: ReadyModel,
    subject: OpenedModel,
    settings: InferSettings,
    reporter: Reporter,
    *,
    group: ReplicaGroup,
) -> list[_Measured]:
    """Measures one batch size after the other; a compiled model is compiled again for each."""
    repetition, device = settings.repetition, subject.device
    reporter.start_progress("bench infer", done=0, total=len(settings.batch_sizes) * repetition.total)
    found = []
    for number, batch in enumerate(settings.batch_sizes):
        show = counting(reporter, done=number * repetition.total, what=f"batch {batch}")
        compile_s = ready.compile_s
        if ready.is_compiled and number > 0:
            with reporter.showing(f"compiling for batch {batch}"):
                compile_s = first_call_s(ready.forward, subject.images(batch), device=device)
        step = _step(ready.forward, subject, settings, batch=batch, group=group)
        if ready.is_captured:
            with torch.inference_mode():
                step()
        repeats = _repeats(step, batch, device, repetition, show, group=group)
        longest_s = max(seconds or 0.0 for seconds in group.gather(compile_s))
        found.append(
            _Measured(
                batch=batch,
                repeats=_together(group.gather(repeats), batch=batch),
                peak_memory_bytes=max(group.gather(device.peak_memory_bytes)),
                compile_s=longest_s if ready.is_compiled else None,
            )
        )
    reporter.stop_progress()
    return found


def _step(
    forward: Forward, subject: OpenedModel, settings: InferSettings, *, batch: int, group: ReplicaGroup
) -> Callable[[], object]:
    """A function that computes the logits of one batch."""
    if settings.data == "device":
        images = subject.images(batch)
        return lambda: forward(images)
    firsts = count(group.rank * batch, group.size * batch)
    return lambda: forward(subject.images(batch, first=next(firsts)))


@torch.inference_mode()
def _repeats(
    step: Callable[[], object],
    batch: int,
    device: Device,
    repetition: Repetition,
    show: Callable[[], None],
    *,
    group: ReplicaGroup,
) -> list[dict[str, Any]]:
    read_joules = energy_counter(device)
    for _ in range(repetition.warmup_steps):
        step()
        show()
    repeats = []
    for _ in range(repetition.repeats):
        # Replicas are measured while all of them compute.
        group.barrier()
        device.synchronise()
        joules_before = read_joules()
        clock, run_ahead = StepClock(device), RunAhead(device)
        ends_s = perf_counter() + (repetition.most_s or math.inf)
        done = 0
        while done < repetition.steps and (done == 0 or perf_counter() < ends_s):
            step()
            clock.note()
            # Launching takes much less time than computing, so the end would be long past otherwise.
            run_ahead.wait()
            show()
            done += 1
        seconds = clock.stop()
        waited = done if repetition.most_s is None else min(done, _MOST_WAITED)
        joules = joules_between(joules_before, read_joules()) if group.size == 1 else None
        repeats.append(
            {
                "images_per_second": batch / (clock.total_s / done),
                "seconds_per_batch": clock.total_s / done,
                "step_seconds": seconds if device.is_cpu else _waited(step, device, steps=waited),
                **({} if joules is None else {"joules": joules, "images": batch * done}),
            }
        )
    return repeats


def _together(of_ranks: Sequence[list[dict[str, Any]]], *, batch: int) -> list[dict[str, Any]]:
    """The repeats of all replicas as one: the slowest replica decides when all batches are done."""
    if len(of_ranks) == 1:
        return of_ranks[0]
    together = []
    for repeats in zip(*of_ranks, strict=True):
        slowest_s = max(repeat["seconds_per_batch"] for repeat in repeats)
        together.append(
            {
                "images_per_second": len(repeats) * batch / slowest_s,
                "seconds_per_batch": slowest_s,
                "step_seconds": [second for repeat in repeats for second in repeat["step_seconds"]],
            }
        )
    return together


def _waited(step: Callable[[], object], device: Device, *, steps: int) -> list[float]:
    """The latency of single batches: synchronizes with the accelerator after each one."""
    seconds = []
    for _ in range(steps):
        clock = StepClock(device)
        step()
        clock.stop()
        seconds.append(clock.total_s)
    return seconds


def records_compiled(device: Device) -> bool:
    """Whether compiled models are captured as CUDA graphs on this device, where they can be."""
    return device.torch_device.type == "cuda"


def _entry(
    found: _Measured, *, replicas: int, work: ModelWork, peak_tflops: float, states: dict[str, str]
) -> Entry:
    row = one_median(found.repeats, "seconds_per_batch", images=replicas * found.batch)
    tflops = work.flops_per_image * row["images_per_second"] / 1e12
    figures = {
        **row,
        **percentiles([second for repeat in found.repeats for second in repeat["step_seconds"]]),
        "peak_memory_bytes": float(found.peak_memory_bytes),
        "tflops": tflops,
        "fraction_of_peak": tflops / peak_tflops,
        **({} if found.compile_s is None else {"compile_seconds": found.compile_s}),
        **joules_per_image(found.repeats),
    }
    return Entry(name=f"infer batch {found.batch}", figures=figures, repeats=found.repeats, states=states)


def _workload(recipe: Recipe, preprocess: Preparation) -> dict[str, Any]:
    return {
        "model": recipe.model,
        "model_width": recipe.model_width,
        "model_params": plain_value(recipe.model_params),
        "image": f"{preprocess.channels}x{preprocess.height}x{preprocess.width}",
        "num_classes": preprocess.spec.num_classes,
    }


def _settings(
    recipe: Recipe, settings: InferSettings, precision: Precision, *, group: ReplicaGroup
) -> dict[str, Any]:
    repetition = settings.repetition
    return {
        "data": settings.data,
        "batch_sizes": list(settings.batch_sizes),
        "replicas": group.size,
        "precision": precision.description,
        "compile": recipe.compile,
        "folded_batch_norm": settings.folds,
        "threads": torch.get_num_threads(),
        "warmup_steps": repetition.warmup_steps,
        "steps": repetition.steps,
        "repeats": repetition.repeats,
        **repetition.limit,
    }
