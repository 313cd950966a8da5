"""Host events: the updates after which training pauses to log, validate or write a checkpoint.

The updates between two host events are one execution: the device runs them without the host looking at
results. Fewer events mean fewer synchronisations.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isqrt

from drivetrain.core.errors import BadInputError
from drivetrain.plan.epochs import EpochPlan
from drivetrain.recipe.layout import BatchArithmetic


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPeriod:
    """The number of updates between two logs, with warnings if it differs from what the user asked for."""

    updates: int
    warnings: tuple[str, ...] = ()


def parse_logs_per_epoch(text: str) -> Fraction:
    """Reads a frequency such as 2, 0.5 or 1/3 as an exact fraction."""
    try:
        exact = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise BadInputError(
            f"--logs-per-epoch {text} is not a number; use for example 2, 0.5, 1/3 or 0."
        ) from None
    if exact < 0:
        raise BadInputError(
            f"--logs-per-epoch {text} is negative; use 0 (log only at the end of the run) or more."
        )
    # A script may compute 1 / 3 as a float and pass 0.3333333333333333. It means the simple fraction with the
    # same float value; the literal decimal would never divide a number of epochs evenly.
    simple = exact.limit_denominator(10**6)
    return simple if float(simple) == float(exact) else exact


def period_from_frequency(text: str, *, epochs: EpochPlan) -> LogPeriod:
    """The log period closest to `text` logs per epoch that divides the epoch, or the run, into equal parts.

    If an epoch ends in the middle of an update, no period divides it evenly, and the period is rounded.
    """
    asked = parse_logs_per_epoch(text)
    if asked == 0:
        return LogPeriod(updates=epochs.total_updates, warnings=(_single_execution_warning(epochs),))
    if asked < 1:
        _require_whole_epochs(asked, num_epochs=epochs.num_epochs)
    if epochs.updates_per_epoch.denominator != 1:
        return _rounded_period(text, asked, epochs=epochs)
    spans_run = asked < 1
    num_epochs = epochs.num_epochs if spans_run else 1
    updates = epochs.updates_of_all_epochs if spans_run else epochs.weight_updates
    executions = nearest_divisor(updates, target=asked * num_epochs)
    possible = Fraction(executions, num_epochs)
    warnings = () if possible == asked else (_moved_warning(text, possible=possible, updates=updates),)
    return LogPeriod(updates=updates // executions, warnings=warnings)


def _rounded_period(text: str, asked: Fraction, *, epochs: EpochPlan) -> LogPeriod:
    updates = max(1, round(epochs.updates_per_epoch / asked))
    warning = (
        f"An epoch has {float(epochs.updates_per_epoch):.6g} weight updates, so --logs-per-epoch {text} is "
        f"rounded to one log every {updates} updates; --log-every sets the number of updates directly."
    )
    return LogPeriod(
        updates=updates, warnings=() if updates * asked == epochs.updates_per_epoch else (warning,)
    )


def nearest_divisor(number: int, *, target: Fraction | int) -> int:
    """The divisor of `number` closest to `target`; of two equally close ones the larger."""
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    divisors = {*small, *(number // divisor for divisor in small)}
    return min(divisors, key=lambda divisor: (abs(divisor - target), -divisor))


def _require_whole_epochs(asked: Fraction, *, num_epochs: int) -> None:
    epochs_a_time = 1 / asked
    if num_epochs % epochs_a_time == 0:
        return
    works = Fraction(1, nearest_divisor(num_epochs, target=epochs_a_time))
    raise BadInputError(
        f"Logging once every {float(epochs_a_time)} epochs does not divide {num_epochs} epochs evenly; "
        f"--logs-per-epoch {works} works."
    )


def _single_execution_warning(epochs: EpochPlan) -> str:
    return (
        f"--logs-per-epoch 0 runs all {epochs.total_updates} weight updates without a log; "
        "nothing is logged before the end of training."
    )


def _moved_warning(text: str, *, possible: Fraction, updates: int) -> str:
    return (
        f"--logs-per-epoch {text} does not divide {updates} weight updates into equal intervals; "
        f"the nearest possible frequency, {possible} logs per epoch, is used."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RarerEvaluation:
    """After the first `periods` validations only every `times`-th one runs; 0: only the last one."""

    periods: int
    times: int

    def next_period(self, period: int) -> int | None:
        """The first period from `period` on (counted from 1) that ends with a validation; None: no more."""
        if period <= self.periods:
            return period
        return None if self.times == 0 else -(-period // self.times) * self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvents:
    """The periods of the events, in updates; the last update of a run is an event of every kind.

    `evaluate_updates` is a fraction if an epoch is not a whole number of updates. The model is then validated
    at the first update that completes another epoch. `evaluation_is_asked_for` is true if the user chose the
    period; otherwise a run may validate less often (`rarer`).
    """

    log_updates: int
    evaluate_updates: Fraction
    checkpoint_updates: int
    total_updates: int
    logs_per_epoch: float
    execution_updates: int
    evaluation_is_asked_for: bool = False
    rarer: RarerEvaluation | None = None
    warnings: tuple[str, ...] = ()

    def next_event(self, update: int) -> int:
        """The next host event after `update` finished updates: where the running execution ends."""
        periods = (self.log_updates, self.checkpoint_updates)
        nearest = min(_next_multiple(update, period=period) for period in periods)
        return min(self.total_updates, nearest, self.next_evaluation(update))

    def is_log(self, update: int) -> bool:
        """Whether metrics are logged once `update` updates are finished."""
        return self._is_due(update, period=self.log_updates)

    def is_evaluation(self, update: int) -> bool:
        """Whether the model is validated once `update` updates are finished."""
        return update >= 1 and self.next_evaluation(update - 1) == update

    def next_evaluation(self, update: int) -> int:
        """The next validation after `update` finished updates."""
        period = floor(update / self.evaluate_updates) + 1
        due = period if self.rarer is None else self.rarer.next_period(period)
        return (
            self.total_updates if due is None else min(self.total_updates, ceil(due * self.evaluate_updates))
        )

    def is_checkpoint(self, update: int) -> bool:
        """Whether a checkpoint is written once `update` updates are finished."""
        return self._is_due(update, period=self.checkpoint_updates)

    def _is_due(self, update: int, *, period: Fraction | int) -> bool:
        if update < 1:
            return False
        return update == self.total_updates or _next_multiple(update - 1, period=period) == update


def plan_host_events(
    *,
    batch: BatchArithmetic,
    epochs: EpochPlan,
    logs_per_epoch: str,
    log_every: int | None,
    steps_per_execution: int | None,
    evaluate_every: int | None,
    checkpoint_every: int | None,
) -> HostEvents:
    """Works out the host events of a training from the options that set their periods."""
    log_period = _explicit_period(log_every, steps_per_execution=steps_per_execution, batch=batch)
    evaluation = epochs.updates_per_epoch
    if log_period is None:
        log_period = period_from_frequency(logs_per_epoch, epochs=epochs)
        if parse_logs_per_epoch(logs_per_epoch) < 1:
            # The user asked for several epochs without a log. Validating after every epoch would interrupt
            # them, so validation follows the log period.
            evaluation = Fraction(log_period.updates)
    asked = {
        f"--log-every {log_every}": log_every,
        f"--steps-per-execution {steps_per_execution}": steps_per_execution and log_period.updates,
        f"--evaluate-every {evaluate_every}": evaluate_every,
        f"--checkpoint-every {checkpoint_every}": checkpoint_every,
    }
    return HostEvents(
        log_updates=log_period.updates,
        evaluate_updates=evaluation if evaluate_every is None else Fraction(evaluate_every),
        checkpoint_updates=log_period.updates if checkpoint_every is None else checkpoint_every,
        total_updates=epochs.total_updates,
        logs_per_epoch=float(epochs.updates_per_epoch / log_period.updates),
        execution_updates=min(log_period.updates, epochs.total_updates),
        evaluation_is_asked_for=evaluate_every is not None,
        warnings=(*log_period.warnings, *_never_due_warnings(asked, total_updates=epochs.total_updates)),
    )


def _explicit_period(
    log_every: int | None, *, steps_per_execution: int | None, batch: BatchArithmetic
) -> LogPeriod | None:
    if steps_per_execution is None:
        return None if log_every is None else LogPeriod(updates=log_every)
    if log_every is not None:
        raise BadInputError(
            f"--log-every {log_every} and --steps-per-execution {steps_per_execution} both set the log "
            f"period; use only one of them, for example --log-every {log_every}."
        )
    updates, rest = divmod(steps_per_execution, batch.accumulation)
    if rest:
        raise BadInputError(_uneven_steps(steps_per_execution, accumulation=batch.accumulation))
    return LogPeriod(updates=updates)


def _uneven_steps(steps: int, *, accumulation: int) -> str:
    below = steps // accumulation * accumulation
    works = f"{below} or {below + accumulation}" if below else f"{accumulation} or {2 * accumulation}"
    return (
        f"--steps-per-execution {steps} is not a multiple of the {accumulation} micro-batches that each "
        f"replica accumulates per weight update; use --steps-per-execution {works}."
    )


def _never_due_warnings(asked: dict[str, int | None], *, total_updates: int) -> list[str]:
    return [
        f"{option} is longer than the run of {total_updates} updates, so it happens only once, at the end."
        for option, updates in asked.items()
        if updates is not None and updates > total_updates
    ]


def _next_multiple(update: int, *, period: Fraction | int) -> int:
    """The first update after `update` that completes another period."""
    return ceil((floor(update / Fraction(period)) + 1) * period)
