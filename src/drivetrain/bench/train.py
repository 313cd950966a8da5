"""Measures the training of a recipe, as one of its ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from drivetrain.bench.clock import StepClock
from drivetrain.bench.device_feed import DeviceFeed
from drivetrain.bench.machine import describe_machine
from drivetrain.bench.peak import DevicePeak, measure_peak
from drivetrain.bench.result import BenchResult, Entry, median_of, percentiles
from drivetrain.bench.subject import Subject
from drivetrain.cluster.replica_group import ALONE, ReplicaGroup
from drivetrain.data.held_once import hold_once
from drivetrain.data.slot_feed import SlotFeed
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.models.prepare import rebuild_model
from drivetrain.pipeline.stage_plan import check_cut
from drivetrain.plan.build import TrainingPlan, plan_training
from drivetrain.program.capturing import capture_updates
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.run.assemble import Assembly, assemble
from drivetrain.run.compile_choice import CompileChoice, choose_compile
from drivetrain.run.patience import START_TIMEOUT_S
from drivetrain.run.reporter import Reporter
from drivetrain.run.train import set_up_device

__all__ = ["TrainMeasurement", "check_stages", "measure_training", "training_result"]

# A backward pass costs about two forward passes: one for the images' gradient, one for the weights'.
_PASSES_PER_UPDATE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainMeasurement:
    """What the ranks found; it travels by pickle. Memory and peaks are one per rank."""

    global_batch: int
    image_shape: tuple[int, int, int]
    num_classes: int
    forward_flops: int
    precision: str
    is_compiled: bool
    compiling: str
    capturing: str
    repeats: list[dict[str, Any]]
    peak_memory_bytes: list[int]
    peaks: list[DevicePeak]
    machine: dict[str, Any]
    warnings: list[str]


def check_stages(recipe: Recipe, spec: DataSpec) -> None:
    """Refuses stages that the model cannot be cut into, before any rank is started."""
    if stage_count(recipe) > 1:
        check_cut(recipe, rebuild_model(recipe, spec))


def measure_training(
    subject: Subject,
    *,
    reporter: Reporter,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
    group: ReplicaGroup = ALONE,
) -> TrainMeasurement:
    """Warms up, trains the repeats by the path of `train`, then finds out what the device can do."""
    recipe = subject.recipe
    group.set_timeout(START_TIMEOUT_S)
    with set_up_device(recipe, group) as device:
        splits = subject.open_data() if data is None else data
        hold_once(splits, group=group)
        plan = plan_training(recipe, samples=len(splits.train))
        assembly = assemble(recipe, data=splits, model=model, plan=plan, device=device, group=group)
        program = assembly.program
        try:
            if subject.data_kind == "device":
                _feed_from_device(assembly, splits, plan, recipe=recipe)
            choice = _choose_compile(assembly, subject)
            repeats = _train(program, subject, reporter)
        finally:
            program.feed.close()
        memory = group.gather(device.peak_memory_bytes)
        # All at once: ranks on a CPU share what it can do.
        peaks = group.gather(measure_peak(device, dtype=program.precision.compute_dtype))
        preprocess = assembly.preprocess
        return TrainMeasurement(
            global_batch=plan.batch.global_batch,
            image_shape=(preprocess.channels, preprocess.height, preprocess.width),
            num_classes=splits.spec.num_classes,
            forward_flops=assembly.totals.flops,
            precision=program.precision.description,
            is_compiled=program.compiled.is_on,
            compiling=choice.sentence,
            capturing=program.capture_status,
            repeats=repeats,
            peak_memory_bytes=memory,
            peaks=peaks,
            machine=describe_machine(str(device.torch_device)),
            warnings=[*splits.warnings, *assembly.warnings, *program.compiled.problems],
        )


def _choose_compile(assembly: Assembly, subject: Subject) -> CompileChoice:
    """As `train` chooses for the whole training."""
    preprocess = assembly.preprocess
    choice = choose_compile(
        subject.recipe,
        assembly.program,
        first=0,
        total=subject.whole_updates,
        image_shape=(preprocess.channels, preprocess.height, preprocess.width),
        goes_on=lambda: True,
    )
    assert choice is not None, "nobody asks a benchmark to stop"
    return choice


def _feed_from_device(assembly: Assembly, data: DataSplits, plan: TrainingPlan, *, recipe: Recipe) -> None:
    """Puts batches that lie on the device in the place of the feed, where this rank reads data at all."""
    program = assembly.program
    if isinstance(program.feed, SlotFeed):
        return
    program.feed.close()
    program.batches.feed = DeviceFeed(
        data.train,
        order=program.order,
        preprocess=assembly.preprocess,
        micro_batch_size=plan.batch.micro,
        device=program.device.torch_device,
        replica=program.groups.replicas.rank,
        replicas=program.groups.replicas.size,
    )
    # What was to be captured took its samples from the other feed.
    capture_updates(program, recipe)


def _train(program: TrainingProgram, subject: Subject, reporter: Reporter) -> list[dict[str, Any]]:
    repetition = subject.repetition
    reporter.start_progress("bench train", done=0, total=repetition.total)
    first, repeats = repetition.warmup_steps, []
    if first:
        _updates(program, 0, first, note=_shown(reporter, "warm-up"))
    for number in range(1, repetition.repeats + 1):
        shown = _shown(reporter, f"repeat {number} of {repetition.repeats}")
        repeats.append(_timed(program, first, repetition.steps, shown=shown))
        first += repetition.steps
    reporter.stop_progress()
    return repeats


def _timed(
    program: TrainingProgram, first: int, steps: int, *, shown: Callable[[int], None]
) -> dict[str, Any]:
    clock = StepClock(program.device)

    def note(update: int) -> None:
        clock.note()
        shown(update)

    _updates(program, first, first + steps, note=note)
    seconds = clock.stop()
    return {
        "images_per_second": steps * program.order.global_batch / clock.total_s,
        "seconds_per_update": clock.total_s / steps,
        # An execution that hands control back only at its end has no single steps.
        **({"step_seconds": seconds} if len(seconds) == steps else {}),
    }


def _updates(program: TrainingProgram, first: int, last: int, *, note: Callable[[int], None]) -> None:
    def goes_on(update: int) -> bool:
        note(update)
        return True

    program.execute(first, last, goes_on=goes_on)


def _shown(reporter: Reporter, what: str) -> Callable[[int], None]:
    def show(update: int) -> None:
        if reporter.progress_due():
            reporter.progress(update, what)

    return show


def _states(measured: TrainMeasurement) -> dict[str, str]:
    """What the table says of how the updates ran."""
    return {
        "compiled": "yes" if measured.is_compiled else "no",
        "captured": "yes" if measured.capturing == "captured" else "no",
    }


def training_result(subject: Subject, measured: TrainMeasurement, *, command: str) -> BenchResult:
    """The figures of a training, and everything that is needed to make them again."""
    recipe = subject.recipe
    speed = median_of(measured.repeats, "images_per_second")
    tflops = _PASSES_PER_UPDATE * measured.forward_flops * speed / 1e12
    peak_tflops = sum(peak.tflops for peak in measured.peaks)
    steps = [second for repeat in measured.repeats for second in repeat.get("step_seconds", ())]
    figures = {
        "images_per_second": speed,
        "seconds_per_update": median_of(measured.repeats, "seconds_per_update"),
        **(percentiles(steps) if steps else {}),
        "peak_memory_bytes": float(max(measured.peak_memory_bytes)),
        "tflops": tflops,
        "fraction_of_peak": tflops / peak_tflops,
    }
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
            "warmup_steps": subject.repetition.warmup_steps,
            "steps": subject.repetition.steps,
            "repeats": subject.repetition.repeats,
        },
        recipe=subject.asked,
        entries=[Entry(name="train", figures=figures, repeats=measured.repeats, states=_states(measured))],
        peak={
            "dtype": measured.peaks[0].dtype,
            "tflops": peak_tflops,
            "copy_gb_per_second": sum(peak.copy_gb_per_second for peak in measured.peaks),
            "devices": len(measured.peaks),
        },
        notes=[
            measured.compiling,
            f"updates {measured.capturing}",
            f"FLOPs of an update: {_PASSES_PER_UPDATE} forward passes, {measured.forward_flops} per image",
        ],
    )
