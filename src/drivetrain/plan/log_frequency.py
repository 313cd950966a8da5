"""`--logs-per-epoch`: the rule that makes executions of equal length out of a wished-for frequency."""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from drivetrain.core.errors import BadInputError
from drivetrain.plan.epochs import EpochPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPeriod:
    """Updates between two logs, and what had to be said about them."""

    updates: int
    warnings: tuple[str, ...] = ()


def parse_logs_per_epoch(text: str) -> Fraction:
    """A frequency written as 2, 0.5 or 1/3, exactly."""
    try:
        exact = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise BadInputError(f"--logs-per-epoch {text} is no number; write 2, 0.5, 1/3 or 0.") from None
    if exact < 0:
        raise BadInputError(
            f"--logs-per-epoch {text} is negative; use 0 (the whole run in one execution) or more."
        )
    # A third computed as a float and printed means the third.
    simple = exact.limit_denominator(10**6)
    return simple if float(simple) == float(exact) else exact


def period_from_frequency(text: str, *, epochs: EpochPlan) -> LogPeriod:
    """The log period nearest to `text` logs per epoch that cuts the epoch, or the run, into equal parts.

    An epoch that ends inside an update cannot be cut so; there the nearest whole period serves.
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
        f"an epoch is {float(epochs.updates_per_epoch):.6g} weight updates long, so "
        f"--logs-per-epoch {text} becomes "
        f"one log every {updates} updates; --log-every sets the period itself."
    )
    return LogPeriod(
        updates=updates, warnings=() if updates * asked == epochs.updates_per_epoch else (warning,)
    )


def nearest_divisor(number: int, *, target: Fraction | int) -> int:
    """The divisor of `number` nearest to `target`; of two equally near ones the larger."""
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    divisors = {*small, *(number // divisor for divisor in small)}
    return min(divisors, key=lambda divisor: (abs(divisor - target), -divisor))


def _require_whole_epochs(asked: Fraction, *, num_epochs: int) -> None:
    epochs_a_time = 1 / asked
    if num_epochs % epochs_a_time == 0:
        return
    works = Fraction(1, nearest_divisor(num_epochs, target=epochs_a_time))
    raise BadInputError(
        f"It is not possible to log {float(epochs_a_time)} epochs a time for {num_epochs} epochs; "
        f"--logs-per-epoch {works} works."
    )


def _single_execution_warning(epochs: EpochPlan) -> str:
    return (
        f"--logs-per-epoch 0 runs the whole training, {epochs.total_updates} weight updates, as a single "
        "execution: nothing is logged before its end."
    )


def _moved_warning(text: str, *, possible: Fraction, updates: int) -> str:
    return (
        f"--logs-per-epoch {text} does not cut {updates} weight updates into executions of equal length; "
        f"the nearest possible frequency, {possible} logs per epoch, is used."
    )
