"""The training loop: executions on the device, and host events (log, validation, checkpoint) between them.

An execution is the updates between two host events; the host does not interrupt the device in between.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from drivetrain.core.errors import RunFailedError
from drivetrain.plan.events import HostEvents
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.collective_timeout import CollectiveTimeout
from drivetrain.recipe.ending import TIME_IS_UP_STATUS
from drivetrain.run.compiling.compile_choice import CompileChoice
from drivetrain.run.loop.checkpoints import RunCheckpoints
from drivetrain.run.loop.clocks import UpdateTimes, pace_updates
from drivetrain.run.loop.context import RunContext
from drivetrain.run.loop.profile import RunProfile
from drivetrain.run.loop.training_log import TrainingLog
from drivetrain.run.loop.validation import Validations
from drivetrain.run.loop.watch import watch_run
from drivetrain.run.reporting.loss_scale_report import check_scale
from drivetrain.run.reporting.replica_efficiency import ReplicaTimes
from drivetrain.store.heartbeat import RankState

__all__ = ["RunLoop", "require_sound"]

# On accelerators, votes to stop are counted a few updates later (`program/stop_votes.py`), so --max-time
# must look that many updates ahead.
_VOTED_AHEAD = 5


def require_sound(program: TrainingProgram, *, first: int, update: int) -> None:
    """Ends the run before a checkpoint if a loss of updates first..update-1 or the loss scale is bad."""
    losses = program.records.read("loss", first, update)
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise RunFailedError(
            f"the loss became {losses[wrong[0]]} at update {first + int(wrong[0]) + 1}; no checkpoint "
            f"was written since; {program.mover.rules.advice_on_overflow}."
        )
    check_scale(program.records, update)


@dataclass(slots=True, kw_only=True)
class RunLoop:
    """Runs a program from its first update to its last, or until it is stopped."""

    context: RunContext
    times: UpdateTimes
    validations: Validations
    choice: CompileChoice | None = None
    profile: RunProfile | None = None
    replica_times: list[ReplicaTimes] = field(default_factory=list)
    checkpoints: RunCheckpoints = field(init=False)
    training_log: TrainingLog = field(init=False)
    collective_timeout: CollectiveTimeout = field(init=False)
    has_begun: bool = False
    finished: int = 0
    """The updates that are finished, also while an execution runs."""
    _reached: int = 0

    def __post_init__(self) -> None:
        self.checkpoints = RunCheckpoints(context=self.context, best=self.validations.best)
        self.training_log = TrainingLog(
            context=self.context, times=self.times, log_updates=self.events.log_updates
        )
        self.collective_timeout = CollectiveTimeout(self.context.program.group.set_timeout)

    @property
    def events(self) -> HostEvents:
        """After which updates the run logs, validates and saves checkpoints."""
        return self.validations.events

    @property
    def is_broken_off(self) -> bool:
        """Whether the run was stopped with updates or a validation still to do."""
        return self.context.stops and (not self._is_done or self.validations.is_owed)

    @property
    def _is_done(self) -> bool:
        return self._reached >= self.events.total_updates or self.validations.early_end.reason is not None

    @property
    def compiles(self) -> bool:
        """Whether anything was compiled, if only to time it for --compile auto."""
        was_tried = self.choice is not None and self.choice.compiling_s > 0
        return was_tried or self.context.program.compiled.is_on

    @property
    def compile_s(self) -> float:
        """Seconds of the first update plus compiling before it; NaN before the first update."""
        if not self.times.first_update_s:
            return math.nan
        return self.times.first_update_s + (0.0 if self.choice is None else self.choice.compiling_s)

    def run(self, first: int) -> int:
        """Runs from update `first`; returns the number of finished updates."""
        self._begin(first)
        with self.checkpoints.writer:
            if self.validations.is_owed:
                self._handle_owed_validation(first)
            while not self._is_done and not self.context.stops:
                self._run_to_next_event()
            self.checkpoints.wait(self._reached)
        self._finish()
        return self._reached

    def require_sound(self, update: int) -> None:
        """Ends the run if a loss since the last log before `update` is not a number."""
        first = max(self.times.first, self.training_log.previous(update))
        require_sound(self.context.program, first=first, update=update)

    def _begin(self, first: int) -> None:
        context, total = self.context, self.events.total_updates
        self.has_begun = True
        self._reached = self.finished = self.validations.pace.first = first
        self.times.begin_run(first)
        context.pulse.begin(first, total=total)
        context.program.rank_sums.wants_stop = lambda: context.stop.made
        self.profile = watch_run(
            context.program,
            context.recipe,
            first=first,
            total=total,
            reporter=context.reporter,
            outline=context.outline,
        )
        context.reporter.start_progress("training", done=first, total=total)
        self.collective_timeout.begin_run()

    def _run_to_next_event(self) -> None:
        update = self._reached = self._execute(self._reached, self.events.next_event(self._reached))
        self.require_sound(update)
        self._handle_events(update)
        if update < self.events.total_updates:
            self._look_at_time(update)

    def _finish(self) -> None:
        context, program = self.context, self.context.program
        context.reporter.stop_progress(is_done=not self.is_broken_off)
        if program.capture is not None:
            program.capture.release()
        self.replica_times = program.group.gather(self.times.of_replica())
        if self.profile is not None:
            self.profile.finish(program.group, directory=context.directory, reporter=context.reporter)
        if context.stops:
            # A signal may have reached only some ranks, but all must end with the same exit status.
            context.stop.make(max(program.group.gather(context.stop.exit_status)))

    def _execute(self, first: int, last: int) -> int:
        program, reached = self.context.program, first
        with self.times.executing():
            if self.times.updates_run == 0:
                reached = self._run_first_update(first)
                reached, self.times.fastest_update_s = pace_updates(
                    program, reached, last, goes_on=self._goes_on, stops=lambda: self.context.stops
                )
            if reached < last and not self.context.stops:
                reached = program.execute(reached, last, goes_on=self._goes_on)
        self.times.updates_run += reached - first
        return reached

    def _run_first_update(self, update: int) -> int:
        """Runs and times the first update separately: it includes kernel selection and compilation."""
        program, reporter = self.context.program, self.context.reporter
        doing: RankState = "compiling" if program.compiled.is_on else "training"
        with self.context.pulse.turned_to(doing), reporter.showing("first update"):
            reached = program.execute(update, update + 1, goes_on=self._is_in_time)
            program.device.synchronise()
        self.times.end_first_update(compiles=self.compiles)
        self.context.pulse.begin_pace(reached)
        for problem in program.compiled.problems:
            reporter.warn(problem)
        return reached

    def _goes_on(self, finished: int) -> bool:
        goes_on = self._is_in_time(finished)
        reporter = self.context.reporter
        if reporter.progress_due():
            reporter.progress(finished, self.training_log.newest(finished))
        return goes_on

    def _is_in_time(self, finished: int) -> bool:
        self.finished = finished
        self.context.pulse.update = finished
        self.context.program.mover.is_moving = False
        self.collective_timeout.end_update()
        self._look_at_time(finished)
        return not self.context.stops

    def _look_at_time(self, finished: int) -> None:
        """Stops the run while there is still time for what must happen before it ends (--max-time)."""
        limit = self.context.limit
        if limit is None:
            return
        if self.checkpoints.writer.longest_write_s:
            limit.reserve("writing", self.checkpoints.writer.longest_write_s)
        next_s = self.collective_timeout.longest_update_s
        # Several ranks cannot interrupt an event together, so they decide before it whether there is time.
        if not self.context.is_alone:
            next_s += self._seconds_of_events_after(finished, copying_s=limit.longest("copying"))
        if limit.is_up(beside=next_s):
            self.context.stop.make(TIME_IS_UP_STATUS)

    def _seconds_of_events_after(self, finished: int, *, copying_s: float) -> float:
        """Seconds of the events that would start before a vote to stop is counted."""
        soon = range(finished + 1, finished + _VOTED_AHEAD + 1)
        validates = any(map(self.validations.is_due, soon))
        saves = self.context.recipe.checkpoints and any(map(self.events.is_checkpoint, soon))
        validation_s = self.validations.longest_s or self._guessed_validation_s(finished)
        return validates * validation_s + saves * copying_s

    def _guessed_validation_s(self, finished: int) -> float:
        """Upper guess before the first validation: the time to train on its samples, which takes longer."""
        evaluate, context = self.validations.evaluate, self.context
        if evaluate is None:
            return 0.0
        samples = context.samples_until(finished) - context.samples_until(finished - 1)
        trained = samples / context.program.groups.replicas.size
        return self.collective_timeout.longest_update_s * evaluate.samples / trained

    def _handle_owed_validation(self, update: int) -> None:
        """Runs the validation that an earlier stop or kill left out."""
        self.collective_timeout.begin_event(validates=True)
        if self.validations.validate(update) and self.context.recipe.checkpoints:
            self.checkpoints.save(update)

    def _handle_events(self, update: int) -> None:
        validates = self.validations.is_due(update)
        if validates or self._saves_anyway(update) or update == self.events.total_updates:
            self.collective_timeout.begin_event(validates=validates)
        with self.context.clock.measure("logging"):
            if self.events.is_log(update):
                self.training_log.write(update, compile_s=self.compile_s)
        improved = False
        # A run that is asked to stop saves a checkpoint, not a validation; the continued run catches up.
        self.validations.is_owed = validates
        if validates and not self.context.stops:
            improved = self.validations.validate(update)
        if self._saves_anyway(update) or (improved and self.context.recipe.checkpoints):
            self.checkpoints.save(update)

    def _saves_anyway(self, update: int) -> bool:
        ends = self.context.stops or self.validations.early_end.reason is not None
        is_due = ends or self.checkpoints.has_lost_one or self.events.is_checkpoint(update)
        return self.context.recipe.checkpoints and is_due
