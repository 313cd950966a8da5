"""Measures a model in evaluation mode: how long a batch takes, and how many images a second go through."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from drivetrain.bench.clock import StepClock
from drivetrain.bench.generated import generated_spec, noise_images
from drivetrain.bench.machine import describe_machine
from drivetrain.bench.peak import measure_peak
from drivetrain.bench.progress import counting
from drivetrain.bench.repetition import Repetition
from drivetrain.bench.result import BenchResult, Entry, median_of, percentiles
from drivetrain.bench.subject import asked_values
from drivetrain.cluster.devices import Device
from drivetrain.cluster.replica_group import ALONE
from drivetrain.data.preparation import build_preparation
from drivetrain.data.preprocess import Preparation, channels_last_view
from drivetrain.factories import describe_failure
from drivetrain.models.prepare import is_own_model, rebuild_model
from drivetrain.models.summary import summarise_model
from drivetrain.program.build import place_model
from drivetrain.program.forward import Forward, Precision, choose_precision
from drivetrain.program.inference import build_inference, declined_recordings
from drivetrain.program.safe_folding import fold_where_same
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.reporter import Reporter
from drivetrain.run.restore import find_checkpoints, open_trained_run
from drivetrain.run.train import set_up_device

__all__ = ["InferSettings", "measure_inference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSettings:
    """What is measured, and how often; `run` is a run directory whose weights are used."""

    batch_sizes: tuple[int, ...]
    repetition: Repetition
    folds: bool = True
    run: Path | None = None
    checkpoint: str = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """A model on its device, and what its images are like."""

    model: nn.Module
    preprocess: Preparation
    device: Device
    precision: Precision
    is_known: bool

    def images(self, batch: int) -> Tensor:
        """A batch of noise on the device, ready for the model."""
        stored = torch.from_numpy(noise_images(self.preprocess.spec, np.arange(batch, dtype=np.int64)))
        prepared = self.preprocess(channels_last_view(stored.to(self.device.torch_device)))
        return prepared.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """How the model is run, and what there is to say about it."""

    forward: Forward
    is_compiled: bool = False
    notes: list[str]


def measure_inference(
    resolved: ResolvedRecipe, settings: InferSettings, *, reporter: Reporter, command: str
) -> BenchResult:
    """From prepared images on the device to logits there, at every batch size."""
    recipe = resolved.recipe
    with set_up_device(recipe, ALONE) as device:
        subject = _open(resolved, settings, device=device, reporter=reporter)
        compiles = recipe.compile == "on" or (recipe.compile == "auto" and not device.is_cpu)
        ready = _make_ready(subject, settings, compiles=compiles)
        compiles = ready.is_compiled
        flops = _flops(subject)
        declined_before = declined_recordings() if compiles else 0
        measured = _measure(ready.forward, subject, settings, reporter)
        # On CUDA, what is compiled is also recorded once and replayed, unless it cannot be.
        is_captured = (
            compiles and device.torch_device.type == "cuda" and declined_recordings() == declined_before
        )
        states = {"compiled": "yes" if compiles else "no", "captured": "yes" if is_captured else "no"}
        peak = measure_peak(device, dtype=subject.precision.compute_dtype)
        return BenchResult(
            benchmark="infer",
            command=command,
            machine=describe_machine(str(device.torch_device)),
            workload=_workload(recipe, subject.preprocess),
            settings=_settings(recipe, settings, subject.precision),
            recipe=asked_values(recipe),
            entries=[
                _entry(*found, flops=flops, peak_tflops=peak.tflops, states=states) for found in measured
            ],
            peak=peak.to_json(),
            notes=[
                "from prepared images on the device to logits there; peak memory is of the whole process",
                *(
                    ["compile auto: an accelerator compiles, a CPU does not"]
                    if recipe.compile == "auto"
                    else []
                ),
                *ready.notes,
            ],
        )


def _open(resolved: ResolvedRecipe, settings: InferSettings, *, device: Device, reporter: Reporter) -> _Model:
    recipe = resolved.recipe
    precision = choose_precision(recipe, device)
    if settings.run is not None:
        run = open_trained_run(settings.run, device=str(device.torch_device))
        run.load(find_checkpoints(run.directory, settings.checkpoint, warn=reporter.warn)[0])
        is_known = is_own_model(run.recipe)
        return _Model(
            model=run.model,
            preprocess=run.preprocess,
            device=device,
            precision=precision,
            is_known=is_known,
        )
    spec = generated_spec(resolved)
    model = place_model(rebuild_model(recipe, spec), device)
    preprocess = build_preparation(recipe, spec)
    return _Model(
        model=model,
        preprocess=preprocess,
        device=device,
        precision=precision,
        is_known=is_own_model(recipe),
    )


def _make_ready(subject: _Model, settings: InferSettings, *, compiles: bool) -> _Ready:
    """Folded and compiled as far as the model lets itself be."""
    images = subject.images(settings.batch_sizes[0])
    model, precision, notes = subject.model.eval(), subject.precision, []
    if settings.folds:
        model, why_not = fold_where_same(model, images[:1], precision=precision, is_known=subject.is_known)
        notes += [] if why_not is None else [why_not]
    plain = build_inference(model, precision=precision, folds=False)
    if not compiles:
        return _Ready(forward=plain, notes=notes)
    compiled = build_inference(model, precision=precision, compiles=True, folds=False, fuses=subject.is_known)
    try:
        with torch.inference_mode():
            compiled(images)
    except Exception as error:
        notes.append(f"the model runs uncompiled, as compiling failed: {describe_failure(error)}")
        return _Ready(forward=plain, notes=notes)
    return _Ready(forward=compiled, is_compiled=True, notes=notes)


def _flops(subject: _Model) -> int:
    preprocess = subject.preprocess
    size = {"image_size": preprocess.height, "width": preprocess.width}
    return summarise_model(subject.model, channels=preprocess.channels, **size).flops


_Measured = tuple[int, list[dict[str, Any]], int]


def _measure(
    forward: Forward, subject: _Model, settings: InferSettings, reporter: Reporter
) -> Sequence[_Measured]:
    """Batch size, repeats and peak memory of each."""
    total = len(settings.batch_sizes) * settings.repetition.total
    reporter.start_progress("bench infer", done=0, total=total)
    found = []
    for number, batch in enumerate(settings.batch_sizes):
        done = number * settings.repetition.total
        show = counting(reporter, done=done, what=f"batch {batch}")
        repeats = _repeats(forward, subject.images(batch), subject.device, settings.repetition, show)
        found.append((batch, repeats, subject.device.peak_memory_bytes))
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
                "images_per_second": repetition.steps * len(images) / clock.total_s,
                "seconds_per_batch": clock.total_s / repetition.steps,
                "step_seconds": seconds if device.is_cpu else _waited(forward, images, device, repetition),
            }
        )
    return repeats


def _waited(forward: Forward, images: Tensor, device: Device, repetition: Repetition) -> list[float]:
    """The latency of single batches: on an accelerator the next one is not begun before the last is done."""
    seconds = []
    for _ in range(repetition.steps):
        clock = StepClock(device)
        forward(images)
        clock.stop()
        seconds.append(clock.total_s)
    return seconds


def _entry(
    batch: int,
    repeats: list[dict[str, Any]],
    memory: int,
    *,
    flops: int,
    peak_tflops: float,
    states: dict[str, str],
) -> Entry:
    speed = median_of(repeats, "images_per_second")
    tflops = flops * speed / 1e12
    figures = {
        "images_per_second": speed,
        "seconds_per_batch": median_of(repeats, "seconds_per_batch"),
        **percentiles([second for repeat in repeats for second in repeat["step_seconds"]]),
        "peak_memory_bytes": float(memory),
        "tflops": tflops,
        "fraction_of_peak": tflops / peak_tflops,
    }
    return Entry(name=f"infer batch {batch}", figures=figures, repeats=repeats, states=states)


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
        "warmup_steps": repetition.warmup_steps,
        "steps": repetition.steps,
        "repeats": repetition.repeats,
    }
