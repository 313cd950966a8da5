"""`bench infer`: latency and throughput of a model in evaluation mode, for each batch size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drivetrain.bench.clock import StepClock, counting
from drivetrain.bench.machine import describe_machine, measure_peak
from drivetrain.bench.ready_model import (
    InferSettings,
    OpenedModel,
    ReadyModel,
    first_call_s,
    make_ready,
    open_model,
)
from drivetrain.bench.repetition import Repetition, spread_notes
from drivetrain.bench.result import BenchResult, Entry, one_median, percentiles
from drivetrain.bench.subject import asked_values
from drivetrain.console.reporter import Reporter
from drivetrain.data.preprocess import Preparation
from drivetrain.devices.device import Device
from drivetrain.inference.model.optimised import declined_recordings
from drivetrain.models.summary import summarise_model
from drivetrain.passes.forward import Forward, Precision
from drivetrain.ranks.replica_group import ALONE
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.train import set_up_device

__all__ = ["InferSettings", "measure_inference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The measurement at one batch size; `compile_s` is None without compilation."""

    batch: int
    repeats: list[dict[str, Any]]
    peak_memory_bytes: int
    compile_s: float | None


def measure_inference(
    resolved: ResolvedRecipe, settings: InferSettings, *, reporter: Reporter, command: str
) -> BenchResult:
    """Measures the model alone, from preprocessed images on the device to logits on the device."""
    recipe = resolved.recipe
    with set_up_device(recipe, ALONE) as device:
        subject = open_model(resolved, settings, device=device, reporter=reporter)
        compiles = recipe.compile == "on" or (recipe.compile == "auto" and not device.is_cpu)
        declined_before = declined_recordings() if compiles else 0
        with reporter.showing("compiling" if compiles else "first batch"):
            ready = make_ready(subject, settings, compiles=compiles)
        flops = _flops(subject)
        measured = _measure(ready, subject, settings, reporter)
        is_captured = (
            ready.is_compiled and records_compiled(device) and declined_recordings() == declined_before
        )
        states = {
            "compiled": "yes" if ready.is_compiled else "no",
            "captured": "yes" if is_captured else "no",
        }
        with reporter.showing("measuring the device's peak"):
            peak = measure_peak(device, dtype=subject.precision.compute_dtype)
        entries = [_entry(found, flops=flops, peak_tflops=peak.tflops, states=states) for found in measured]
        return BenchResult(
            benchmark="infer",
            command=command,
            machine=describe_machine(str(device.torch_device)),
            workload=_workload(recipe, subject.preprocess),
            settings=_settings(recipe, settings, subject.precision),
            recipe=asked_values(recipe),
            entries=entries,
            peak=peak.to_json(),
            notes=[
                *spread_notes(entries, settings.repetition),
                "measured from preprocessed images on the device to logits on the device; peak memory is "
                "that of the whole process",
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


def _flops(subject: OpenedModel) -> int:
    preprocess = subject.preprocess
    size = {"image_size": preprocess.height, "width": preprocess.width}
    return summarise_model(subject.model, channels=preprocess.channels, **size).flops


def _measure(
    ready: ReadyModel, subject: OpenedModel, settings: InferSettings, reporter: Reporter
) -> list[_Measured]:
    """Measures one batch size after the other; a compiled model is compiled again for each."""
    repetition, device = settings.repetition, subject.device
    reporter.start_progress("bench infer", done=0, total=len(settings.batch_sizes) * repetition.total)
    found = []
    for number, batch in enumerate(settings.batch_sizes):
        show = counting(reporter, done=number * repetition.total, what=f"batch {batch}")
        images, compile_s = subject.images(batch), ready.compile_s
        if ready.is_compiled and number > 0:
            with reporter.showing(f"compiling for batch {batch}"):
                compile_s = first_call_s(ready.forward, images, device=device)
        repeats = _repeats(ready.forward, images, device, repetition, show)
        found.append(
            _Measured(
                batch=batch,
                repeats=repeats,
                peak_memory_bytes=device.peak_memory_bytes,
                compile_s=compile_s,
            )
        )
    reporter.stop_progress()
    return found


@torch.inference_mode()
def _repeats(
    forward: Forward, images: Tensor, device: Device, repetition: Repetition, show: Callable[[], None]
) -> list[dict[str, Any]]:
    for _ in range(repetition.warmup_steps):
        forward(images)
        show()
    repeats = []
    for _ in range(repetition.repeats):
        clock = StepClock(device)
        for _ in range(repetition.steps):
            forward(images)
            clock.note()
            show()
        seconds = clock.stop()
        repeats.append(
            {
                "images_per_second": len(images) / (clock.total_s / repetition.steps),
                "seconds_per_batch": clock.total_s / repetition.steps,
                "step_seconds": seconds if device.is_cpu else _waited(forward, images, device, repetition),
            }
        )
    return repeats


def _waited(forward: Forward, images: Tensor, device: Device, repetition: Repetition) -> list[float]:
    """The latency of single batches: synchronizes with the accelerator after each one."""
    seconds = []
    for _ in range(repetition.steps):
        clock = StepClock(device)
        forward(images)
        clock.stop()
        seconds.append(clock.total_s)
    return seconds


def records_compiled(device: Device) -> bool:
    """Whether compiled models are captured as CUDA graphs on this device, where they can be."""
    return device.torch_device.type == "cuda"


def _entry(found: _Measured, *, flops: int, peak_tflops: float, states: dict[str, str]) -> Entry:
    row = one_median(found.repeats, "seconds_per_batch", images=found.batch)
    tflops = flops * row["images_per_second"] / 1e12
    figures = {
        **row,
        **percentiles([second for repeat in found.repeats for second in repeat["step_seconds"]]),
        "peak_memory_bytes": float(found.peak_memory_bytes),
        "tflops": tflops,
        "fraction_of_peak": tflops / peak_tflops,
        **({} if found.compile_s is None else {"compile_seconds": found.compile_s}),
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


def _settings(recipe: Recipe, settings: InferSettings, precision: Precision) -> dict[str, Any]:
    repetition = settings.repetition
    return {
        "batch_sizes": list(settings.batch_sizes),
        "precision": precision.description,
        "compile": recipe.compile,
        "folded_batch_norm": settings.folds,
        "threads": torch.get_num_threads(),
        "warmup_steps": repetition.warmup_steps,
        "steps": repetition.steps,
        "repeats": repetition.repeats,
    }
