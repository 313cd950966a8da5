"""Turns the measurements of the ranks into the result of `bench train`."""

from dataclasses import dataclass
from typing import Any

from drivetrain.bench.machine import DevicePeak
from drivetrain.bench.model_work import ModelWork
from drivetrain.bench.repetition import spread_notes
from drivetrain.bench.result import BenchResult, Entry, joules_per_image, one_median, percentiles
from drivetrain.bench.subject import Subject
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.layout import stage_count

__all__ = ["LongTraining", "TrainMeasurement", "training_result"]

# An update is counted as three forward passes: a backward pass costs about two, one for the gradients of the
# activations and one for those of the weights.
_PASSES_PER_UPDATE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTraining:
    """The compiled updates of a training that is long enough to gain from compiling."""

    repeats: list[dict[str, Any]]
    compile_s: float
    peak_memory_bytes: int
    capturing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainMeasurement:
    """The measurement of all ranks, which is pickled. Memory and peaks have one value per rank.

    `compile_s` is the compile time of the slowest rank; None without compilation. `is_short`: `--compile
    auto` compiles nothing because the recipe's training is short; `long` is then what a longer one does.
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
    work: ModelWork | None = None
    is_short: bool = False
    long: LongTraining | None = None


def _states(*, is_compiled: bool, capturing: str) -> dict[str, str]:
    """Whether the updates were compiled and captured, for the table."""
    return {
        "compiled": "yes" if is_compiled else "no",
        "captured": "yes" if capturing == "captured" else "no",
    }


def _entries(measured: TrainMeasurement) -> list[Entry]:
    """The training of the recipe, and that of a longer one if it was measured."""
    first = _entry(
        "train",
        measured.repeats,
        measured,
        states=_states(is_compiled=measured.is_compiled, capturing=measured.capturing),
        compile_s=measured.compile_s,
        peak_memory_bytes=max(measured.peak_memory_bytes),
    )
    if measured.long is None:
        return [first]
    long = measured.long
    second = _entry(
        "train, long enough to compile",
        long.repeats,
        measured,
        states=_states(is_compiled=True, capturing=long.capturing),
        compile_s=long.compile_s,
        peak_memory_bytes=long.peak_memory_bytes,
    )
    return [first, second]


def _entry(
    name: str,
    repeats: list[dict[str, Any]],
    measured: TrainMeasurement,
    *,
    states: dict[str, str],
    compile_s: float | None,
    peak_memory_bytes: int,
) -> Entry:
    row = one_median(repeats, "seconds_per_update", images=measured.global_batch)
    tflops = _PASSES_PER_UPDATE * measured.forward_flops * row["images_per_second"] / 1e12
    figures = {
        **row,
        **percentiles([second for repeat in repeats for second in repeat["step_seconds"]]),
        "peak_memory_bytes": float(peak_memory_bytes),
        "tflops": tflops,
        "fraction_of_peak": tflops / sum(peak.tflops for peak in measured.peaks),
        **({} if compile_s is None else {"compile_seconds": compile_s}),
        **joules_per_image(repeats),
    }
    return Entry(name=name, figures=figures, repeats=repeats, states=states)


def _length_notes(measured: TrainMeasurement) -> list[str]:
    """What `--compile auto` would do in a longer training."""
    if not measured.is_short:
        return []
    if measured.long is None:
        return ["a longer training may be compiled and run at another speed, which --compile on measures"]
    return [
        "the first row is the recipe's own training, which is too short to gain from compiling; the second "
        "is a training that is long enough"
    ]


def training_result(subject: Subject, measured: TrainMeasurement, *, command: str) -> BenchResult:
    """The figures of a training, with everything that is needed to repeat the measurement."""
    recipe = subject.recipe
    entries = _entries(measured)
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
            **subject.repetition.limit,
        },
        recipe=subject.asked,
        entries=entries,
        peak={
            "dtype": measured.peaks[0].dtype,
            "tflops": sum(peak.tflops for peak in measured.peaks),
            "copy_gb_per_second": sum(peak.copy_gb_per_second for peak in measured.peaks),
            "devices": len(measured.peaks),
        },
        model={} if measured.work is None else measured.work.to_json(),
        notes=[
            *spread_notes(entries, subject.repetition),
            measured.compiling,
            *_length_notes(measured),
            *([] if measured.compile_s is None else [f"compiling took {measured.compile_s:.1f} s"]),
            f"updates {measured.capturing}",
            f"FLOPs of an update: counted as {_PASSES_PER_UPDATE} forward passes of {measured.forward_flops} "
            "FLOPs per image",
        ],
    )
