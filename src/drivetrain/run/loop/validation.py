"""Validations during training: when they run, the best so far, early stopping and their interval."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from drivetrain.inference.model.evaluator import Evaluator, validation_batch_size
from drivetrain.plan.events import HostEvents
from drivetrain.ranks.activity_note import Doing
from drivetrain.recipe.ending import TIME_IS_UP_STATUS, EarlyEnd
from drivetrain.run.loop.clocks import UpdateTimes
from drivetrain.run.loop.context import RunContext
from drivetrain.run.loop.forced_shortage import ForcedShortage, forced_shortage
from drivetrain.run.loop.validation_pace import PaceChoice, ValidationPace, fixed_by_option, keep_rarer
from drivetrain.run.loop.watch import noted
from drivetrain.store.best import Best
from drivetrain.tasks.task import Evaluation

__all__ = ["Validations"]


class _ValidationStoppedError(Exception):
    """The run was asked to stop during a validation."""


class _ValidationTooLongError(Exception):
    """A validation takes too long compared to the training (`ValidationPace`)."""


@dataclass(slots=True, kw_only=True)
class Validations:
    """Validates after the updates that `events` name; validates more rarely if it takes too long.

    `is_owed`: a validation is due and has not been made yet.
    """

    context: RunContext
    times: UpdateTimes
    events: HostEvents
    evaluate: Evaluator | None
    best: Best
    early_end: EarlyEnd
    is_owed: bool = False
    last: Evaluation | None = None
    longest_s: float = 0.0
    pace: ValidationPace = field(init=False)
    is_under_way: bool = False
    _under_way: tuple[int, float] = (0, 0.0)
    _forced: ForcedShortage | None = None

    def __post_init__(self) -> None:
        self.pace = ValidationPace(
            events=self.events,
            fixed_by=fixed_by_option(self.context.recipe),
            is_open=not self.events.evaluation_is_asked_for and self.events.rarer is None,
            can_break_off=self.context.is_alone,
        )
        if self.evaluate is not None:
            size = validation_batch_size(self.context.recipe, self.evaluate.preprocess)
            self._forced = forced_shortage(rank=self.context.program.group.rank, batch_size=size)

    def is_due(self, update: int) -> bool:
        """Whether a validation takes place after this update."""
        return self.evaluate is not None and self.events.is_evaluation(update)

    def validate(self, update: int) -> bool:
        """Validates; True if the result is the best so far. A request to stop interrupts it."""
        if self.evaluate is None:
            return False
        self._under_way = (update, time.perf_counter())
        try:
            with self._shown(update, samples=self.evaluate.samples):
                found, improved = self._judged(update)
        except _ValidationStoppedError:
            return False
        except _ValidationTooLongError:
            self.is_owed = False
            self._choose_pace(self.pace.break_off(update))
            return False
        self._keep(update, found)
        return improved

    @contextmanager
    def _shown(self, update: int, *, samples: int) -> Iterator[None]:
        context = self.context
        with (
            noted(Doing.VALIDATION, update=update),
            context.pulse.turned_to("validating"),
            context.clock.measure("validation"),
            context.reporter.showing("validating", total=samples),
            context.program.weights_to_measure(),
        ):
            self.is_under_way = True
            try:
                yield
            except (_ValidationStoppedError, _ValidationTooLongError):
                self.is_under_way = False
                raise
            self.is_under_way = False

    def _judged(self, update: int) -> tuple[Evaluation, bool]:
        # Objects (connected regions) are scored only at the end: this takes the host longer than the rest
        # of a validation.
        found = self._measured(regions=update == self.events.total_updates)
        metrics = found.as_metrics()
        improved = self.best.offer(update, metrics.get(self.best.metric))
        self.early_end.see(metrics, improved=improved)
        if self.early_end.reason is not None:
            found = self._measured(regions=True)
        return found, improved

    def _measured(self, *, regions: bool) -> Evaluation:
        assert self.evaluate is not None
        return self.evaluate(regions=regions, on_batch=self._end_of_batch)

    def _keep(self, update: int, found: Evaluation) -> None:
        lasted_s = time.perf_counter() - self._under_way[1]
        self.longest_s = max(self.longest_s, lasted_s)
        self.last = found
        self.is_owed = False
        self.context.log.validation(update, **self.context.position(update), **found.as_metrics())
        self._see_pace(update, lasted_s)

    def _see_pace(self, update: int, lasted_s: float) -> None:
        """Chooses the validation interval once the times of updates and validations are known."""
        update_s, group = self.times.usual_update_s, self.context.program.group
        is_over = update == self.events.total_updates or self.early_end.reason is not None
        if update_s is None or is_over or not self.pace.is_open:
            return
        # Clocks differ between ranks, so rank 0 chooses for all.
        choice = self.pace.see(update, lasted_s, update_s=update_s) if group.is_first else None
        choice = group.from_first(choice)
        if choice is not None:
            self._choose_pace(choice)

    def _choose_pace(self, choice: PaceChoice) -> None:
        self.pace.is_open = False
        if choice.rarer is not None:
            self.events = replace(self.events, rarer=choice.rarer)
            if self.context.program.group.is_first:
                keep_rarer(self.context.directory, self.context.recipe, choice.rarer)
        if choice.sentence is not None:
            self.context.reporter.say(choice.sentence)

    def _end_of_batch(self, samples: int) -> None:
        self.context.reporter.progress_if_due(samples)
        if self._forced is not None:
            self._forced.strike("validation", self._under_way[0])
        # Several ranks always finish a validation: they could not agree on the batch to stop at.
        if not self.context.is_alone:
            return
        limit, stop = self.context.limit, self.context.stop
        # An owed validation at the start ignores --max-time: if it were interrupted, every restart would
        # interrupt it again.
        if limit is not None and self.times.updates_run and limit.is_up():
            stop.make(TIME_IS_UP_STATUS)
        if stop.made:
            raise _ValidationStoppedError
        self._check_pace()

    def _check_pace(self) -> None:
        update, began_s = self._under_way
        update_s, is_last = self.times.usual_update_s, update == self.events.total_updates
        if update_s is None or is_last:
            return
        if self.pace.is_too_long(time.perf_counter() - began_s, update_s=update_s):
            raise _ValidationTooLongError
