"""A run from its request to its summary."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from drivetrain.cluster.devices import Device, choose_device
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.errors import BadInputError
from drivetrain.models.summary import summarise_model
from drivetrain.plan.build import InputShape, TrainingPlan, plan_to_json, plan_training
from drivetrain.program.allocator import keep_freed_memory
from drivetrain.recipe.load import ResolvedRecipe, recipe_to_yaml
from drivetrain.recipe.schema import Recipe
from drivetrain.run.assemble import Assembly, assemble
from drivetrain.run.best import Best
from drivetrain.run.checkpoint import Checkpoint, newest_checkpoint, sweep_partial
from drivetrain.run.clock import RunClock
from drivetrain.run.directory import RunDirectory
from drivetrain.run.files import write_atomically, write_json
from drivetrain.run.finish import finish_run
from drivetrain.run.history import load_history
from drivetrain.run.lock import hold_lock
from drivetrain.run.loggers import EventLog
from drivetrain.run.loop import RunLoop
from drivetrain.run.metrics import MetricsLog, read_metrics
from drivetrain.run.prepare import Destination, choose_destination
from drivetrain.run.reporter import Reporter
from drivetrain.run.saver import restore_program
from drivetrain.run.signals import StopRequest, listen_for_stop


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to: "finished", "stopped" by a signal, or only "validated"."""

    directory: Path
    status: str
    updates: int
    metrics: dict[str, Any]
    model: nn.Module
    exit_status: int = 0


def train_resolved(
    resolved: ResolvedRecipe,
    *,
    reporter: Reporter,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
) -> RunResult:
    """Trains what a recipe describes, or continues it where its directory stands."""
    recipe = resolved.recipe
    splits = open_data(recipe) if data is None else data
    _check_runnable(recipe, splits)
    plan = plan_training(recipe, samples=len(splits.train))
    destination = choose_destination(recipe, name=resolved.name, plan=plan, data=splits)
    device = _set_up_device(recipe)
    assembly = assemble(recipe, data=splits, model=model, plan=plan, device=device)
    warnings = [*resolved.warnings, *splits.warnings, *plan.warnings, *assembly.warnings]
    try:
        _make_directory(destination)
        with hold_lock(destination.directory.path), listen_for_stop() as stop:
            run = _Run(recipe, splits, plan, destination, assembly, reporter, stop)
            return run.carry_out(warnings)
    finally:
        assembly.program.feed.close()


def _check_runnable(recipe: Recipe, data: DataSplits) -> None:
    if recipe.replicas > 1:
        raise BadInputError(
            f"--replicas {recipe.replicas} can be planned but not trained yet; --replicas 1 "
            f"--gradient-accumulation-count N gives the same global batch."
        )
    if data.spec.height != data.spec.width and recipe.image_size is None and ":" not in recipe.model:
        raise BadInputError(
            f"the images are {data.spec.height}x{data.spec.width}, which --model {recipe.model} "
            f"does not take; "
            f"--image-size {min(data.spec.height, data.spec.width)} makes them square."
        )
    if not recipe.training and (not recipe.validation or data.validation is None):
        raise BadInputError(
            "--training False leaves nothing to do without validation; use --validation True."
        )


def _set_up_device(recipe: Recipe) -> Device:
    if recipe.num_threads is not None:
        torch.set_num_threads(recipe.num_threads)
    keep_freed_memory()
    return choose_device(recipe.device)


def _make_directory(destination: Destination) -> None:
    """The directory exists and, when a run starts afresh, holds nothing of an older one."""
    path = destination.directory.path
    path.mkdir(parents=True, exist_ok=True)
    if destination.continues:
        return
    with hold_lock(path):
        for entry in path.iterdir():
            if entry.name == ".lock":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


class _Run:
    """One process's share of a run."""

    def __init__(
        self,
        recipe: Recipe,
        data: DataSplits,
        plan: TrainingPlan,
        destination: Destination,
        assembly: Assembly,
        reporter: Reporter,
        stop: StopRequest,
    ) -> None:
        self.recipe, self.data, self.plan = recipe, data, plan
        self.directory: RunDirectory = destination.directory
        self.identity = destination.identity
        self.assembly, self.reporter, self.stop = assembly, reporter, stop

    def carry_out(self, warnings: list[str]) -> RunResult:
        checkpoint, problems = newest_checkpoint(self.directory.checkpoints)
        sweep_partial(self.directory.checkpoints)
        self.reporter.log_to(self.directory.log)
        for warning in [*warnings, *problems]:
            self.reporter.warn(warning)
        if checkpoint is not None:
            self._restore(checkpoint)
        first = 0 if checkpoint is None else checkpoint.update
        if self.recipe.training and self._is_finished(first):
            return self._say_finished()
        self._write_request(warnings)
        self._introduce(first, checkpoint)
        return (
            self._train(first, checkpoint) if self.recipe.training else self._validate_only(first, checkpoint)
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        restore_program(self.assembly.program, checkpoint)
        records = self.assembly.program.records
        records.restore(load_history(self.directory.updates), updates=checkpoint.update)
        now = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        before = checkpoint.manifest["environment"]
        if before != now:
            self.reporter.warn(
                f"the checkpoint was written under {before}, this is {now}; the run continues, but not bit "
                "for bit."
            )

    def _is_finished(self, first: int) -> bool:
        total = self.plan.epochs.total_updates
        if first >= total:
            return True
        summaries = [e for e in read_metrics(self.directory.metrics) if e["event"] == "summary"]
        return bool(summaries) and first == 0 and int(summaries[-1]["update"]) >= total

    def _say_finished(self) -> RunResult:
        entries = read_metrics(self.directory.metrics)
        metrics = entries[-1] if entries else {}
        self.reporter.say(
            f"{self.directory.path} is finished: {self.plan.epochs.total_updates} updates are done; "
            "--num-epochs with a larger number would continue it, --overwrite start afresh."
        )
        return self._result("finished", self.plan.epochs.total_updates, metrics)

    def _write_request(self, warnings: list[str]) -> None:
        program = self.assembly.program
        totals = summarise_model(
            program.model, channels=self.data.spec.channels, image_size=self.assembly.preprocess.height
        )
        # How this call was made is no part of what the run is: a continuation must not overwrite.
        lasting = self.recipe.model_copy(update={"overwrite": False, "training": True})
        write_atomically(self.directory.recipe, recipe_to_yaml(lasting).encode())
        write_json(self.directory.identity, self.identity)
        write_json(
            self.directory.plan,
            plan_to_json(self.recipe, self.plan, shape=self._shape(), totals=totals, warnings=warnings),
        )
        write_json(self.directory.data, self.data.spec.to_json())

    def _shape(self) -> InputShape:
        spec = self.data.spec
        return InputShape(
            channels=spec.channels, image_size=self.assembly.preprocess.height, num_classes=spec.num_classes
        )

    def _introduce(self, first: int, checkpoint: Checkpoint | None) -> None:
        device = self.assembly.program.device
        batch, epochs = self.plan.batch, self.plan.epochs
        self.reporter.say(
            f"{self.recipe.model} on {self.recipe.dataset}: {epochs.samples} training samples, "
            f"{epochs.total_updates} updates of {batch.global_batch} samples, logging every "
            f"{self.plan.events.log_updates * batch.accumulation} micro-batches"
        )
        self.reporter.say(f"device: {device.torch_device} ({device.description}; {device.reason})")
        self.reporter.say(f"run directory: {self.directory.path}")
        if checkpoint is not None:
            self.reporter.say(f"continuing after update {first} from {checkpoint.path}")

    def _train(self, first: int, checkpoint: Checkpoint | None) -> RunResult:
        metrics = MetricsLog(self.directory.metrics)
        metrics.rewind(first)
        loop = RunLoop(
            recipe=self.recipe,
            program=self.assembly.program,
            epochs=self.plan.epochs,
            events=self.plan.events,
            directory=self.directory,
            log=self._event_log(first),
            reporter=self.reporter,
            stop=self.stop,
            clock=RunClock(elapsed_before_s=_elapsed_so_far(self.directory)),
            evaluate=self.assembly.evaluate,
            best=Best() if checkpoint is None else Best.from_json(checkpoint.manifest["state"]["best"]),
        )
        try:
            reached = loop.run(first)
            if reached < self.plan.epochs.total_updates:
                return self._stopped(reached)
            summary = finish_run(loop, data=self.data, assembly=self.assembly)
        finally:
            loop.log.close()
        return self._result("finished", reached, summary)

    def _event_log(self, first: int) -> EventLog:
        log = EventLog(
            self.directory,
            reporter=self.reporter,
            total_updates=self.plan.epochs.total_updates,
            first_update=first,
        )
        if self.recipe.tensorboard:
            log.add_tensorboard(self.directory)
        return log

    def _stopped(self, reached: int) -> RunResult:
        kept = "a checkpoint is written" if self.recipe.checkpoints else "--checkpoints False kept nothing"
        self.reporter.say(f"stopped after update {reached}: {kept}; the same command continues the run.")
        return self._result("stopped", reached, {}, exit_status=self.stop.exit_status)

    def _validate_only(self, first: int, checkpoint: Checkpoint | None) -> RunResult:
        assert self.assembly.evaluate is not None
        if checkpoint is None:
            self.reporter.warn("there is no checkpoint, so fresh, untrained weights are validated.")
        evaluation = self.assembly.evaluate()
        log = self._event_log(first)
        epoch = self.plan.epochs.epoch_of(max(first - 1, 0)) + 1 if first else 0
        log.validation(
            first, epoch=epoch, samples=first * self.plan.batch.global_batch, **evaluation.as_metrics()
        )
        log.close()
        return self._result("validated", first, evaluation.as_metrics())

    def _result(
        self, status: str, updates: int, metrics: dict[str, Any], *, exit_status: int = 0
    ) -> RunResult:
        return RunResult(
            directory=self.directory.path,
            status=status,
            updates=updates,
            metrics=metrics,
            model=self.assembly.program.model,
            exit_status=exit_status,
        )


def _elapsed_so_far(directory: RunDirectory) -> float:
    entries = read_metrics(directory.metrics)
    return max((float(entry.get("elapsed_seconds", 0.0)) for entry in entries), default=0.0)
