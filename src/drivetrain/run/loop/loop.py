"""The loop of a run: executions on the device, host events between them."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from drivetrain.catalogue.metrics import brief_metric
from drivetrain.console.figures import speed_text
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import RunFailedError
from drivetrain.inference.model.evaluator import Evaluator
from drivetrain.plan.epochs import EpochPlan
from drivetrain.plan.events import HostEvents
from drivetrain.program.training import TrainingProgram
from drivetrain.ranks.activity_note import Doing
from drivetrain.ranks.collective_timeout import Patience
from drivetrain.recipe.ending import TIME_IS_UP_STATUS, EarlyEnd
from drivetrain.recipe.schema import Recipe
from drivetrain.run.compiling.compile_choice import CompileChoice
from drivetrain.run.events.loggers import EventLog
from drivetrain.run.events.loss_scale_report import check_scale, scale_values
from drivetrain.run.events.replica_efficiency import ReplicaTimes, SumSeconds, read_sums
from drivetrain.run.loop.clocks import RunClock, pace_updates
from drivetrain.run.loop.profile import RunProfile
from drivetrain.run.loop.validation_pace import PaceChoice, ValidationPace, fixed_by_option, keep_rarer
from drivetrain.run.loop.watch import noted, watch_run
from drivetrain.run.stopping import StopRequest, TimeLimit
from drivetrain.state.checkpoint_writer import CheckpointWriter
from drivetrain.state.saver import copy_sound_state
from drivetrain.state.updates_file import save_history
from drivetrain.store.best import Best
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.task import Evaluation

__all__ = ["RunLoop", "require_sound"]

# Until a checkpoint has been written: weights, two states of the optimiser and an average, at the speed of a
# slow disk in bytes per second.
_STATE_COPIES, _GUESSED_WRITING = 4, 100e6
# Accelerators count votes to stop a few updates later (`program/stop_votes.py`).
_VOTED_AHEAD = 5


# Losses that are not finite end a run before their weights are kept.


def require_sound(program: TrainingProgram, *, first: int, update: int) -> None:
    """Refuses to go on where a loss of updates first..update-1, or the loss scale after them, is no use."""
    losses = program.records.read("loss", first, update)
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise RunFailedError(
            f"the loss became {losses[wrong[0]]} at update {first + int(wrong[0]) + 1}; no checkpoint "
            f"was written after that; {program.weight_update.rules.advice_on_overflow}."
        )
    check_scale(program.records, update)


class _ValidationStoppedError(Exception):
    """The run was asked to stop while it validated."""


class _ValidationTooLongError(Exception):
    """A validation takes more of the time than it may."""


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
    evaluate: Evaluator | None
    best: Best
    early_end: EarlyEnd
    limit: TimeLimit | None = None
    compile_s: float = math.nan
    choice: CompileChoice | None = None
    last_evaluation: Evaluation | None = None
    _updates_run: int = 0
    execution_s: float = 0.0
    _first: int = 0
    _reached: int = 0
    _began: float = 0.0
    _validation_began: float = 0.0
    _processor_s: float = 0.0
    _mark: tuple[int, float] = (0, 0.0)
    _feed_before: tuple[float, float] = (0.0, 0.0)
    _last_logged: str = "loss: -"
    owes_validation: bool = False
    profile: RunProfile | None = None
    replica_times: list[ReplicaTimes] = field(default_factory=list)
    fastest_update_s: float = math.inf
    patience: Patience = field(init=False)
    writer: CheckpointWriter = field(init=False)
    pace: ValidationPace = field(init=False)
    _sums: SumSeconds = field(default_factory=SumSeconds)
    _compiling: ReplicaTimes | None = None
    _longest_validation_s: float = 0.0

    def __post_init__(self) -> None:
        self.patience = Patience(self.program.group.set_timeout)
        self.writer = CheckpointWriter(self.directory.checkpoints, keep_last=self.recipe.keep_checkpoints)
        self.pace = ValidationPace(
            events=self.events,
            fixed_by=fixed_by_option(self.recipe),
            is_open=not self.events.evaluation_is_asked_for and self.events.rarer is None,
            can_break_off=self.program.group.size == 1,
        )
        if self.limit is not None and self.recipe.checkpoints:
            values = self.program.parameters.values
            guess_s = _STATE_COPIES * values.numel() * values.element_size() / _GUESSED_WRITING
            self.limit.guess("writing", guess_s)

    def run(self, first: int) -> int:
        """Runs from update `first`; returns the number of finished updates."""
        update = self._reached = first
        self._first = self.pace.first = first
        self._mark = (first, 0.0)
        self._feed_before = (self.program.feed.data_seconds, self.program.feed.transfer_seconds)
        self.program.rank_sums.wants_stop = lambda: self.stop.made
        self.profile = watch_run(
            self.program, self.recipe, first=first, total=self.events.total_updates, reporter=self.reporter
        )
        self.reporter.start_progress("training", done=first, total=self.events.total_updates)
        self.patience.begin_run()
        with self.writer:
            if self.owes_validation:
                self._handle_owed_validation(first)
            while update < self.events.total_updates and not self.stops and not self.early_end.reason:
                update = self._reached = self._execute(update, self.events.next_event(update))
                first = max(self._first, self._previous_log(update))
                require_sound(self.program, first=first, update=update)
                self._handle_events(update)
                if update < self.events.total_updates:
                    self._look_at_time(update)
            with noted(Doing.CHECKPOINT, update=update), self._waiting_for_checkpoint():
                self.writer.wait()
        self.reporter.stop_progress(is_done=not self.is_broken_off)
        if self.program.capture is not None:
            self.program.capture.release()
        self.replica_times = self.program.group.gather(self._own_times())
        if self.profile is not None:
            self.profile.finish(self.program.group, directory=self.directory, reporter=self.reporter)
        if self.stops:
            # A signal may have reached only some replicas, but all end with one status.
            self.stop.make(max(self.program.group.gather(self.stop.exit_status)))
        return update

    def _own_times(self) -> ReplicaTimes:
        """Of this replica until now; the first update, which compiles, counts where there is no other."""
        before = self._compiling if self._updates_run > 1 else None
        if before is None:
            return ReplicaTimes(
                execution_s=self.execution_s or math.inf, data_s=sum(self.feed_seconds), sums=self._sums
            )
        return ReplicaTimes(
            execution_s=self.execution_s - before.execution_s,
            data_s=sum(self.feed_seconds) - before.data_s,
            sums=self._sums.added(before.sums, factor=-1.0),
        )

    @property
    def is_broken_off(self) -> bool:
        """Whether the run was stopped before all its work was done."""
        is_done = self._reached >= self.events.total_updates or self.early_end.reason is not None
        return self.stops and (not is_done or self.owes_validation)

    @property
    def stops(self) -> bool:
        """Whether the run was asked to stop; several replicas agree on the update at which they do."""
        return self.program.rank_sums.stop_votes.agreed if self.program.group.size > 1 else self.stop.made

    @property
    def images_per_second(self) -> float:
        """Training throughput of this process, host events not counted."""
        return self._speed(self._first + self._updates_run, self.execution_s)

    @property
    def first_update_s(self) -> float:
        """Seconds of the first update of this process; 0 before it is over."""
        return 0.0 if self._compiling is None else self._compiling.execution_s

    @property
    def compiles(self) -> bool:
        """Whether anything was compiled, be it only to see what that gives."""
        was_tried = self.choice is not None and self.choice.compiling_s > 0
        return was_tried or self.program.compiled.is_on

    def _speed(self, reached: int, until_s: float, *, since: tuple[int, float] | None = None) -> float:
        """Samples per second since another update, or since the first one, which may compile."""
        first = (self._first + 1, self.first_update_s) if reached > self._first + 1 else (self._first, 0.0)
        update, before_s = since or first
        seconds = until_s - before_s
        return (self._samples(reached) - self._samples(update)) / seconds if seconds else math.nan

    @property
    def timed_samples(self) -> int:
        """The samples of the updates that `replica_times` are of."""
        begin = self._first + (1 if self._updates_run > 1 else 0)
        return self._samples(self._first + self._updates_run) - self._samples(begin)

    @property
    def processor_share(self) -> float | None:
        """How much of the threads' time in executions a CPU really worked; None where that says little."""
        waits_for_others = self.program.group.size > 1
        if not self.program.device.is_cpu or not self.execution_s or waits_for_others:
            return None
        return self._processor_s / (self.execution_s * torch.get_num_threads())

    @property
    def feed_seconds(self) -> tuple[float, float]:
        """Seconds the updates waited for data, and for their transfer; set-up before them not counted."""
        feed, (data_s, transfer_s) = self.program.feed, self._feed_before
        return feed.data_seconds - data_s, feed.transfer_seconds - transfer_s

    def _samples(self, update: int) -> int:
        return self.program.order.samples_until(update)

    def _execute(self, first: int, last: int) -> int:
        self._began = begin = time.perf_counter()
        processor_s = time.process_time()
        sums_before = read_sums(self.program)
        reached = first
        if self._updates_run == 0:
            reached = self._compile(first, sums_before)
            reached, self.fastest_update_s = pace_updates(
                self.program, reached, last, goes_on=self._goes_on, stops=lambda: self.stops
            )
        if reached < last and not self.stops:
            reached = self.program.execute(reached, last, goes_on=self._goes_on)
        self.program.device.synchronise()
        self._sums = self._sums.added(read_sums(self.program)).added(sums_before, factor=-1.0)
        self.execution_s += time.perf_counter() - begin
        self._processor_s += time.process_time() - processor_s
        self._updates_run += reached - first
        return reached

    def _compile(self, update: int, sums_before: SumSeconds) -> int:
        """The very first update pays for kernel selection and compilation, and is timed apart."""
        with self.reporter.showing("compiling" if self.program.compiled.is_on else "first update"):
            reached = self.program.execute(update, update + 1, goes_on=self._is_in_time)
            self.program.device.synchronise()
        first_update_s = time.perf_counter() - self._began
        self.compile_s = first_update_s + (0.0 if self.choice is None else self.choice.compiling_s)
        for problem in self.program.compiled.problems:
            self.reporter.warn(problem)
        if self.compiles:
            # What prepares the data was compiled meanwhile too.
            self._feed_before = (self.program.feed.data_seconds, self.program.feed.transfer_seconds)
        self._compiling = ReplicaTimes(
            execution_s=first_update_s,
            data_s=sum(self.feed_seconds),
            sums=read_sums(self.program).added(sums_before, factor=-1.0),
        )
        return reached

    def _goes_on(self, finished: int) -> bool:
        goes_on = self._is_in_time(finished)
        if self.reporter.progress_due():
            self.reporter.progress(finished, self._progress_detail(finished))
        return goes_on

    def _is_in_time(self, finished: int) -> bool:
        self.patience.end_update()
        self._look_at_time(finished)
        return not self.stops

    def _look_at_time(self, finished: int) -> None:
        """Stops the run while what must come before its end still fits into the time it has."""
        if self.limit is None:
            return
        if self.writer.longest_write_s:
            self.limit.reserve("writing", self.writer.longest_write_s)
        next_s = self.patience.longest_update_s
        # Several replicas decide before an event whether there is time for it: they cannot break it off.
        if self.program.group.size > 1:
            next_s += self._seconds_of_events_after(finished)
        if self.limit.is_up(beside=next_s):
            self.stop.make(TIME_IS_UP_STATUS)

    def _seconds_of_events_after(self, finished: int) -> float:
        """What the events cost that would begin before a vote to stop is counted."""
        assert self.limit is not None
        soon = range(finished + 1, finished + _VOTED_AHEAD + 1)
        validates = self.evaluate is not None and any(map(self.events.is_evaluation, soon))
        saves = self.recipe.checkpoints and any(map(self.events.is_checkpoint, soon))
        validation_s = self._longest_validation_s or self._guessed_validation_s(finished)
        return validates * validation_s + saves * self.limit.longest("copying")

    def _guessed_validation_s(self, finished: int) -> float:
        """Before the first validation: as if its samples were trained on, which takes longer."""
        if self.evaluate is None:
            return 0.0
        trained = (self._samples(finished) - self._samples(finished - 1)) / self.program.groups.replicas.size
        return self.patience.longest_update_s * self.evaluate.samples / trained

    def _progress_detail(self, finished: int) -> str:
        """Where reading a number costs nothing the newest ones; an accelerator is not asked between logs."""
        if not self.program.device.is_cpu:
            return self._last_logged
        newest = self._means(finished - 1, finished)
        until_s = self.execution_s + time.perf_counter() - self._began
        return self._described(newest, images_per_second=self._speed(finished, until_s))

    def _means(self, first: int, last: int) -> dict[str, float]:
        """Mean loss and score of updates first..last-1."""
        records = self.program.records
        names = ("loss", self.program.task.metric)
        return {name: float(np.nanmean(records.read(name, first, last))) for name in names}

    def _described(self, means: dict[str, float], *, images_per_second: float) -> str:
        metric = self.program.task.metric
        words = brief_metric(metric)
        score = f"training{'_' if words == metric else ' '}{words}: {means[metric]:.4f}"
        return f"loss: {means['loss']:.4f}  {score}  images/s: {speed_text(images_per_second)}"

    def _previous_log(self, update: int) -> int:
        return (update - 1) // self.events.log_updates * self.events.log_updates

    def _handle_owed_validation(self, update: int) -> None:
        """What a stop or a kill left undone at the update where the run goes on."""
        self.patience.begin_event(validates=True)
        if self._validate(update) and self.recipe.checkpoints:
            self._checkpoint(update)

    def _handle_events(self, update: int) -> None:
        validates = self.evaluate is not None and self.events.is_evaluation(update)
        if validates or self._saves_anyway(update) or update == self.events.total_updates:
            self.patience.begin_event(validates=validates)
        with self.clock.measure("logging"):
            if self.events.is_log(update):
                self._log_training(update)
        improved = False
        # A run that is asked to stop keeps its weights; it owes the validation, and pays when it goes on.
        self.owes_validation = validates
        if self.owes_validation and not self.stops:
            improved = self._validate(update)
        if self._saves_anyway(update) or (improved and self.recipe.checkpoints):
            self._checkpoint(update)

    def _saves_anyway(self, update: int) -> bool:
        ends = self.stops or self.early_end.reason is not None
        # Of several ranks only the first knows of a failure before all of them save again.
        has_lost_one = self.writer.has_failed and self.program.group.size == 1
        return self.recipe.checkpoints and (ends or has_lost_one or self.events.is_checkpoint(update))

    def _log_training(self, update: int) -> None:
        first = self._previous_log(update)
        values = self._means(first, update)
        rate = float(self.program.records.read("learning_rate", update - 1, update)[0])
        is_first_log = self._mark[1] == 0.0
        speed = self._speed(update, self.execution_s, since=None if is_first_log else self._mark)
        extra = {"compile_seconds": self.compile_s} if is_first_log else {}
        self._mark = (update, self.execution_s)
        self._last_logged = self._described(values, images_per_second=speed)
        values |= {"learning_rate": rate, "images_per_second": speed, **extra}
        values |= scale_values(self.program.records, first, update)
        self.log.training(update, **self._position(update), **values)

    def _validate(self, update: int) -> bool:
        """Measures the weights; True when they are the best so far. A request to stop breaks it off."""
        if self.evaluate is None:
            return False
        self._validation_began = time.perf_counter()
        try:
            with (
                noted(Doing.VALIDATION, update=update),
                self.clock.measure("validation"),
                self.reporter.showing("validating", total=self.evaluate.samples),
                self.program.weights_to_measure(),
            ):
                # Objects are scored at the end alone: it takes the host longer than the rest of a validation.
                found = self._measured(regions=update == self.events.total_updates)
                metrics = found.as_metrics()
                improved = self.best.offer(update, metrics.get(self.best.metric))
                self.early_end.see(metrics, improved=improved)
                if self.early_end.reason is not None:
                    found = self._measured(regions=True)
        except _ValidationStoppedError:
            return False
        except _ValidationTooLongError:
            self.owes_validation = False
            self._choose_pace(self.pace.break_off(update))
            return False
        lasted_s = time.perf_counter() - self._validation_began
        self._longest_validation_s = max(self._longest_validation_s, lasted_s)
        self.last_evaluation = found
        self.owes_validation = False
        self.log.validation(update, **self._position(update), **found.as_metrics())
        self._see_pace(update, lasted_s)
        return improved

    def _see_pace(self, update: int, lasted_s: float) -> None:
        """Once it is known what updates and validations take, how often to validate is chosen."""
        update_s, group = self._usual_update_s, self.program.group
        is_over = update == self.events.total_updates or self.early_end.reason is not None
        if update_s is None or is_over or not self.pace.is_open:
            return
        # Clocks differ: the first replica chooses for all.
        choice = self.pace.see(update, lasted_s, update_s=update_s) if group.is_first else None
        choice = group.from_first(choice)
        if choice is not None:
            self._choose_pace(choice)

    def _choose_pace(self, choice: PaceChoice) -> None:
        self.pace.is_open = False
        if choice.rarer is not None:
            self.events = replace(self.events, rarer=choice.rarer)
            if self.program.group.is_first:
                keep_rarer(self.directory, self.recipe, choice.rarer)
        if choice.sentence is not None:
            self.reporter.say(choice.sentence)

    @property
    def _usual_update_s(self) -> float | None:
        """Seconds of an update, the first one, which may compile, not counted; None before there is one."""
        updates = self._updates_run - 1
        return (self.execution_s - self.first_update_s) / updates if updates > 0 else None

    def _measured(self, *, regions: bool) -> Evaluation:
        assert self.evaluate is not None
        return self.evaluate(regions=regions, on_batch=self._end_of_batch)

    def _end_of_batch(self, samples: int) -> None:
        self.reporter.progress_if_due(samples)
        # Several replicas measure to the end: they could not agree on where to break off.
        if self.program.group.size > 1:
            return
        # A validation that an earlier part of the run owes is done, however long: else it never would be.
        if self.limit is not None and self._updates_run and self.limit.is_up():
            self.stop.make(TIME_IS_UP_STATUS)
        if self.stop.made:
            raise _ValidationStoppedError
        self._check_pace()

    def _check_pace(self) -> None:
        update_s, is_last = self._usual_update_s, self._reached == self.events.total_updates
        if update_s is None or is_last:
            return
        lasted_s = time.perf_counter() - self._validation_began
        if self.pace.is_too_long(lasted_s, update_s=update_s):
            raise _ValidationTooLongError

    def _checkpoint(self, update: int) -> None:
        """Copies what is to be kept; while that is written, the training goes on.

        After a write that failed this one must succeed.
        """
        with noted(Doing.CHECKPOINT, update=update), self._waiting_for_checkpoint():
            room, failure = self.writer.settle()
            with nullcontext() if self.limit is None else self.limit.timing("copying"):
                copied = copy_sound_state(self.program, update=update, room=room)
            if copied is None:
                return
            save_history(self.directory.updates, self.program.records, updates=update)
            state = {"best": self.best.as_json(), "samples": self._samples(update)}
            self.writer.start(copied, update=update, state=state, best_update=self.best.update)
            if failure is not None:
                self.writer.wait()
                self.reporter.warn(f"{failure} Since then, that of update {update} could be written.")

    @contextmanager
    def _waiting_for_checkpoint(self) -> Iterator[None]:
        with self.clock.measure("checkpoint"), self.reporter.showing("writing a checkpoint"):
            yield

    def _position(self, update: int) -> dict[str, float]:
        return {
            "elapsed_seconds": round(self.clock.elapsed_s, 3),
            "epoch": self.epochs.epoch_of(update - 1) + 1,
            "samples": self._samples(update),
        }
