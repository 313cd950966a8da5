"""The loop of a run: executions on the device, host events between them."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from drivetrain.errors import RunFailedError
from drivetrain.plan.epochs import EpochPlan
from drivetrain.plan.events import HostEvents
from drivetrain.program.evaluation import Evaluation
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.best import Best
from drivetrain.run.clock import RunClock
from drivetrain.run.directory import RunDirectory
from drivetrain.run.history import save_history
from drivetrain.run.loggers import EventLog
from drivetrain.run.reporter import Reporter
from drivetrain.run.saver import prune, save_program
from drivetrain.run.signals import StopRequest


@dataclass(slots=True, kw_only=True)
class RunLoop:
    """Carries a program from its first update to its last, or to a stop."""

    recipe: Recipe
    program: TrainingProgram
    epochs: EpochPlan
    events: HostEvents
    directory: RunDirectory
    log: EventLog
    reporter: Reporter
    stop: StopRequest
    clock: RunClock
    evaluate: Callable[[], Evaluation] | None
    best: Best
    compile_s: float = math.nan
    last_evaluation: Evaluation | None = None
    _updates_run: int = 0
    execution_s: float = 0.0
    _mark: tuple[int, float] = field(default=(0, 0.0))

    def run(self, first: int) -> int:
        """Runs from update `first`; returns the number of finished updates."""
        update = first
        self._mark = (first, 0.0)
        self.reporter.start_progress("training", done=first, total=self.events.total_updates)
        while update < self.events.total_updates and not self.stop.made:
            update = self._execute(update, self.events.next_event(update))
            self._check_finite(update)
            self._handle_events(update)
        self.reporter.stop_progress()
        return update

    @property
    def images_per_second(self) -> float:
        """Training throughput of this process, host events not counted."""
        samples = self._updates_run * self.program.order.global_batch
        return samples / self.execution_s if self.execution_s else math.nan

    def _execute(self, first: int, last: int) -> int:
        begin = time.perf_counter()
        if self._updates_run == 0:
            reached = self._first_update(first)
            if reached < last and not self.stop.made:
                reached = self.program.execute(reached, last, goes_on=self._goes_on)
        else:
            reached = self.program.execute(first, last, goes_on=self._goes_on)
        self.program.device.synchronise()
        self.execution_s += time.perf_counter() - begin
        self._updates_run += reached - first
        return reached

    def _first_update(self, update: int) -> int:
        """The first update pays for kernel selection and compilation; it is timed apart."""
        begin = time.perf_counter()
        reached = self.program.execute(update, update + 1, goes_on=self._goes_on)
        self.program.device.synchronise()
        self.compile_s = time.perf_counter() - begin
        return reached

    def _goes_on(self, finished: int) -> bool:
        if self.reporter.progress_due():
            self.reporter.progress(finished, self._progress_detail(finished))
        return not self.stop.made

    def _progress_detail(self, finished: int) -> str:
        """Loss and accuracy of the last logs; an accelerator is never asked for a number in between."""
        first = finished - 1 if self.program.device.is_cpu else self._previous_log(finished) - 1
        loss = self.program.records.read("loss", max(first, 0), max(first, 0) + 1)[0]
        accuracy = self.program.records.read("accuracy", max(first, 0), max(first, 0) + 1)[0]
        return f"loss: {loss:.4f}  training_accuracy: {accuracy:.4f}"

    def _previous_log(self, update: int) -> int:
        return (update - 1) // self.events.log_updates * self.events.log_updates

    def _check_finite(self, update: int) -> None:
        first = self._previous_log(update)
        losses = self.program.records.read("loss", first, update)
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            raise RunFailedError(
                f"the loss became {losses[wrong[0]]} at update {first + int(wrong[0])}; no "
                f"checkpoint was written "
                "after that, and the newest one is sound; try a lower --learning-rate or --clip-norm 1."
            )

    def _handle_events(self, update: int) -> None:
        with self.clock.measure("logging"):
            if self.events.is_log(update):
                self._log_training(update)
        improved = False
        if self.evaluate is not None and self.events.is_evaluation(update):
            with self.clock.measure("validation"):
                improved = self._evaluate(update)
        if self.recipe.checkpoints and (improved or self.stop.made or self.events.is_checkpoint(update)):
            with self.clock.measure("checkpoint"):
                self._checkpoint(update)

    def _log_training(self, update: int) -> None:
        first = self._previous_log(update)
        records = self.program.records
        values = {name: float(records.read(name, first, update).mean()) for name in ("loss", "accuracy")}
        values["learning_rate"] = float(records.read("learning_rate", update - 1, update)[0])
        mark_update, mark_s = self._mark
        seconds = self.execution_s - mark_s
        speed = (update - mark_update) * self.program.order.global_batch / seconds if seconds else math.nan
        extra = {"compile_seconds": self.compile_s} if mark_s == 0.0 else {}
        self._mark = (update, self.execution_s)
        self.log.training(update, **self._position(update), **values, images_per_second=speed, **extra)

    def _evaluate(self, update: int) -> bool:
        assert self.evaluate is not None
        self.last_evaluation = self.evaluate()
        self.log.validation(update, **self._position(update), **self.last_evaluation.as_metrics())
        return self.best.offer(update, self.last_evaluation.accuracy)

    def _checkpoint(self, update: int) -> None:
        save_history(self.directory.updates, self.program.records, updates=update)
        state = {"best": self.best.as_json(), "samples": update * self.program.order.global_batch}
        save_program(self.program, self.directory.checkpoints, update=update, state=state)
        prune(
            self.directory.checkpoints, keep_last=self.recipe.keep_checkpoints, best_update=self.best.update
        )

    def _position(self, update: int) -> dict[str, float]:
        return {
            "elapsed_seconds": round(self.clock.elapsed_s, 3),
            "epoch": self.epochs.epoch_of(update - 1) + 1,
            "samples": update * self.program.order.global_batch,
        }
