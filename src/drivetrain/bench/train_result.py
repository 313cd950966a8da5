"""Turns the measurements of the ranks into the result of `bench train`."""

from dataclasses import dataclass
from typing import Any

from drivetrain.bench.machine import DevicePeak
from drivetrain.bench.repetition import spread_notes
from drivetrain.bench.result import BenchResult, Entry, one_median, percentiles
from drivetrain.bench.subject import Subject
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.layout import stage_count

__all__ = ["TrainMeasurement", "training_result"]

# An update is counted as three forward passes: a backward pass costs about two, one for the gradients of the
# activations and one for those of the weights.
_PASSES_PER_UPDATE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainMeasurement:
    """The measurement of all ranks, which is pickled. Memory and peaks have one value per rank.

    `compile_s` is the compile time of the slowest rank; None without compilation.
    """

    global_batch: int
    image_shape: tuple[int, int, int]
    num_classes: int
    forward_flops: int
    precision: str
    is_compiled: bool
    compiling: str
    compile_s: float | None
    capturing: str
    repeats: list[dict[str, Any]]
    peak_memory_bytes: list[int]
    peaks: list[DevicePeak]
    threads: int
    machine: dict[str, Any]
    warnings: list[str]


def _states(measured: TrainMeasurement) -> dict[str, str]:
    """Whether the updates were compiled and captured, for the table."""
    return {
        "compiled": "yes" if measured.is_compiled else "no",
        "captured": "yes" if measured.capturing == "captured" else "no",
    }


def training_result(subject: Subject, measured: TrainMeasurement, *, command: str) -> BenchResult:
    """The figures of a training, with everything that is needed to repeat the measurement."""
    recipe = subject.recipe
    row = one_median(measured.repeats, "seconds_per_update", images=measured.global_batch)
    tflops = _PASSES_PER_UPDATE * measured.forward_flops * row["images_per_second"] / 1e12
    peak_tflops = sum(peak.tflops for peak in measured.peaks)
    steps = [second for repeat in measured.repeats for second in repeat["step_seconds"]]
    figures = {
        **row,
        **percentiles(steps),
        "peak_memory_bytes": float(max(measured.peak_memory_bytes)),
        "tflops": tflops,
        "fraction_of_peak": tflops / peak_tflops,
        **({} if measured.compile_s is None else {"compile_seconds": measured.compile_s}),
    }
    entry = Entry(name="train", figures=figures, repeats=measured.repeats, states=_states(measured))
    channels, height, width = measured.image_shape
    return BenchResult(
        benchmark="train",
        command=command,
        machine=measured.machine,
        workload={
            "model": recipe.model,
            "model_width": recipe.model_width,
            "model_params": plain_value(recipe.model_params),
            "image": f"{channels}x{height}x{width}",
            "num_classes": measured.num_classes,
            "micro_batch_size": recipe.micro_batch_size,
        },
        settings={
            "data": subject.data_kind,
            "global_batch_size": measured.global_batch,
            "replicas": recipe.replicas,
            "stages": stage_count(recipe),
            "precision": measured.precision,
            "compile": recipe.compile,
            "threads": measured.threads,
            "warmup_steps": subject.repetition.warmup_steps,
            "steps": subject.repetition.steps,
            "repeats": subject.repetition.repeats,
        },
        recipe=subject.asked,
        entries=[entry],
        peak={
            "dtype": measured.peaks[0].dtype,
            "tflops": peak_tflops,
            "copy_gb_per_second": sum(peak.copy_gb_per_second for peak in measured.peaks),
            "devices": len(measured.peaks),
        },
        notes=[
            *spread_notes([entry], subject.repetition),
            measured.compiling,
            *([] if measured.compile_s is None else [f"compiling took {measured.compile_s:.1f} s"]),
            f"updates {measured.capturing}",
            f"FLOPs of an update: counted as {_PASSES_PER_UPDATE} forward passes of {measured.forward_flops} "
            "FLOPs per image",
        ],
    )
