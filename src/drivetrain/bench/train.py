"""`bench train`: measures the training of a recipe, as one of its ranks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.bench.clock import StepClock
from drivetrain.bench.energy import EnergyCounter, energy_counter, joules_between
from drivetrain.bench.machine import describe_machine, measure_peak
from drivetrain.bench.model_work import ModelWork, count_work
from drivetrain.bench.subject import Subject
from drivetrain.bench.train_result import LongTraining, TrainMeasurement
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.held_once import hold_once
from drivetrain.data.feeds.micro_batch import MicroBatch, Parcel, SlotFeed
from drivetrain.data.order import SampleOrder, replica_slots
from drivetrain.data.preprocess import Preparation, build_preparation, channels_last_view
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.devices.device import Device
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.pipeline.cutting.stage_plan import check_cut
from drivetrain.plan.training_plan import TrainingPlan, plan_training
from drivetrain.program.capture_choice import capture_updates
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.collective_timeout import FIRST_UPDATE_TIMEOUT_S
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.run.compiling.compile_choice import CompileChoice, choose_compile
from drivetrain.run.train import set_up_device

__all__ = ["DeviceFeed", "check_stages", "measure_training"]


class DeviceFeed:
    """A feed without any work on data: one preprocessed batch stays on the device and is used every time.

    It holds the first samples of a source, without augmentation.
    """

    def __init__(
        self,
        source: Source,
        *,
        order: SampleOrder,
        preprocess: Preparation,
        micro_batch_size: int,
        device: torch.device,
        replica: int = 0,
        replicas: int = 1,
    ) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        stored = source.fetch(np.arange(micro_batch_size, dtype=np.int64) % len(source))
        images, labels = (torch.from_numpy(part).to(device) for part in stored)
        images, labels = preprocess.both(channels_last_view(images), labels)
        slots = replica_slots(
            global_batch=order.global_batch, replica=replica, replicas=replicas, micro=micro_batch_size
        )
        self._batches = [
            MicroBatch(images, labels, None, own) for own in torch.from_numpy(slots.copy()).to(device)
        ]

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:  # noqa: ARG002
        """The micro-batches of an update, which are the same for every update."""
        return iter(self._batches)

    def collect(self, update: int) -> Parcel:  # noqa: ARG002
        """Empty: the batches are on the device already."""
        return Parcel.of(())

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:  # noqa: ARG002
        """The same micro-batches again."""
        return iter(self._batches)

    def close(self) -> None:
        """Frees the device memory."""
        self._batches = []


def check_stages(recipe: Recipe, spec: DataSpec) -> None:
    """Raises if the model cannot be split into the recipe's stages, before any rank is started."""
    if stage_count(recipe) > 1:
        preparation = build_preparation(recipe, spec)
        shape = (preparation.channels, preparation.height, preparation.width)
        check_cut(recipe, rebuild_model(recipe, spec), image_shape=shape)


def measure_training(
    subject: Subject,
    *,
    reporter: Reporter,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
    group: ReplicaGroup = ALONE,
) -> TrainMeasurement:
    """Warms up, measures the repeats with the code of `train`, then measures the peak speed of the device."""
    recipe = subject.recipe
    group.set_timeout(FIRST_UPDATE_TIMEOUT_S)
    with set_up_device(recipe, group) as device:
        splits = subject.open_data() if data is None else data
        hold_once(splits, group=group)
        plan = plan_training(recipe, samples=len(splits.train))
        with reporter.showing("building the model"):
            assembly = assemble(recipe, data=splits, model=model, plan=plan, device=device, group=group)
        program = assembly.program
        try:
            if subject.data_kind == "device":
                _feed_from_device(assembly, splits, plan, recipe=recipe)
            choice = _choose_compile(assembly, subject, reporter)
            first_update_s, repeats = _train(program, subject, reporter)
            memory = group.gather(device.peak_memory_bytes)
            is_compiled, capturing = program.compiled.is_on, program.capture_status
            long = _longer_training(program, subject, reporter) if _compiles_quickly(choice, device) else None
        finally:
            program.feed.close()
        longest_compile_s = max(group.gather(choice.compiling_s or _longer_s(first_update_s, repeats)))
        # On all ranks at the same time: ranks on a CPU share its cores, so their peaks add up to the CPU's.
        with reporter.showing("measuring the device's peak"):
            peaks = group.gather(measure_peak(device, dtype=program.precision.compute_dtype))
        preprocess = assembly.preprocess
        return TrainMeasurement(
            global_batch=plan.batch.global_batch,
            image_shape=(preprocess.channels, preprocess.height, preprocess.width),
            num_classes=splits.spec.num_classes,
            forward_flops=assembly.totals.flops,
            precision=program.precision.description,
            is_compiled=is_compiled,
            compiling=choice.sentence,
            compile_s=longest_compile_s if is_compiled else None,
            capturing=capturing,
            repeats=repeats,
            peak_memory_bytes=memory,
            peaks=peaks,
            threads=torch.get_num_threads(),
            machine=describe_machine(str(device.torch_device)),
            warnings=[*splits.warnings, *assembly.warnings, *program.compiled.problems],
            work=None if model is not None else _work(assembly, recipe, splits.spec),
            is_short=choice.is_short,
            long=long,
        )


def _work(assembly: Assembly, recipe: Recipe, spec: DataSpec) -> ModelWork | None:
    """The work of the model as it was before the training changed it; None if it cannot be built again."""
    preprocess = assembly.preprocess
    shape = (preprocess.channels, preprocess.height, preprocess.width)
    with suppress(BadInputError):
        model = rebuild_model(recipe, spec)
        return count_work(model, image_shape=shape, dtype=assembly.program.precision.compute_dtype)
    return None


def _compiles_quickly(choice: CompileChoice, device: Device) -> bool:
    """Whether a training that is too short to compile is measured compiled, too.

    On a CPU compiling takes about a minute, and short trainings are what people run there.
    """
    return choice.is_short and not device.is_cpu


def _longer_training(program: TrainingProgram, subject: Subject, reporter: Reporter) -> LongTraining | None:
    """Measures again, compiled; None if the model cannot be compiled."""
    device = program.device
    device.forget_peak_memory()
    program.compiled.switch(True)
    if program.capture is not None:
        program.capture.forget()
    first_update_s, repeats = _train(program, subject, reporter)
    if program.compiled.failure is not None or not program.compiled.is_on:
        return None
    return LongTraining(
        repeats=repeats,
        compile_s=_longer_s(first_update_s, repeats),
        peak_memory_bytes=device.peak_memory_bytes,
        capturing=program.capture_status,
    )


def _choose_compile(assembly: Assembly, subject: Subject, reporter: Reporter) -> CompileChoice:
    """Decides about compiling as `train` would for the full training."""
    preprocess = assembly.preprocess
    choice = choose_compile(
        subject.recipe,
        assembly.program,
        first=0,
        total=subject.whole_updates,
        image_shape=(preprocess.channels, preprocess.height, preprocess.width),
        goes_on=lambda: True,
        reporter=reporter,
    )
    assert choice is not None, "nobody asks a benchmark to stop"
    return choice


def _feed_from_device(assembly: Assembly, data: DataSplits, plan: TrainingPlan, *, recipe: Recipe) -> None:
    """Replaces the feed by a `DeviceFeed`, on ranks that read data."""
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
    # The capture that was prepared reads from the old feed, so it is set up again.
    capture_updates(program, recipe)


def _train(
    program: TrainingProgram, subject: Subject, reporter: Reporter
) -> tuple[float | None, list[dict[str, Any]]]:
    """The seconds of the very first update (None without warm-up), and the measurements of the repeats."""
    repetition = subject.repetition
    read_joules = energy_counter(program.device) if program.group.size == 1 else _no_joules
    reporter.start_progress("bench train", done=0, total=repetition.total)
    first, first_update_s, repeats = repetition.warmup_steps, None, []
    if first:
        # Timed separately: the very first update includes compiling.
        warming = _shown(reporter, "warm-up")
        first_update_s = _timed(program, 0, 1, shown=warming)["seconds_per_update"]
        _updates(program, 1, first, note=_always(warming))
    for number in range(1, repetition.repeats + 1):
        shown = _shown(reporter, f"repeat {number} of {repetition.repeats}")
        repeats.append(
            _timed(
                program,
                first,
                repetition.steps,
                shown=shown,
                most_s=repetition.most_s,
                read_joules=read_joules,
            )
        )
        first += repetition.steps
    reporter.stop_progress()
    return first_update_s, repeats


def _no_joules() -> None:
    """Several ranks share counters, or have one each."""


def _longer_s(first_update_s: float | None, repeats: Sequence[dict[str, Any]]) -> float:
    """How much longer the very first update took than the median of the others."""
    steps: list[float] = [second for repeat in repeats for second in repeat["step_seconds"]]
    first_s, *later_s = steps if first_update_s is None else [first_update_s, *steps]
    return max(0.0, first_s - median(later_s or [0.0]))


def _timed(
    program: TrainingProgram,
    first: int,
    steps: int,
    *,
    shown: Callable[[int], None],
    most_s: float | None = None,
    read_joules: EnergyCounter = _no_joules,
) -> dict[str, Any]:
    program.device.synchronise()
    joules_before = read_joules()
    clock = StepClock(program.device)
    ends_s = None if most_s is None else perf_counter() + most_s

    def note(update: int) -> bool:
        clock.note()
        shown(update)
        return ends_s is None or perf_counter() < ends_s

    done = _updates(program, first, first + steps, note=note) - first
    seconds = clock.stop()
    joules = joules_between(joules_before, read_joules())
    images = program.order.global_batch * done
    return {
        "images_per_second": program.order.global_batch / (clock.total_s / done),
        "seconds_per_update": clock.total_s / done,
        "step_seconds": seconds,
        **({} if joules is None else {"joules": joules, "images": images}),
    }


def _updates(program: TrainingProgram, first: int, last: int, *, note: Callable[[int], bool]) -> int:
    """Runs updates until `note` returns False; returns the next update."""
    return program.execute(first, last, goes_on=note)


def _always(note: Callable[[int], None]) -> Callable[[int], bool]:
    def go_on(update: int) -> bool:
        note(update)
        return True

    return go_on


def _shown(reporter: Reporter, what: str) -> Callable[[int], None]:
    def show(update: int) -> None:
        if reporter.progress_due():
            reporter.progress(update, what)

    return show
