"""Findings about the training itself: a loss that does not fall, or a score that still rises at the end."""

from itertools import takewhile

from drivetrain.findings.longer import FEW_UPDATES, longer_training
from drivetrain.findings.record import TrainingRecord

__all__ = ["loss_stays", "still_learning", "too_short"]

# Any network that learns at all loses more than a twentieth of its first loss. A few updates say nothing.
_LEAST_FALL = 0.05
_FEWEST_UPDATES = 20
# Rates at which these optimisers usually train from scratch, for batches of about 64.
_USUAL_RATES = {"sgd": 0.05, "adam": 0.001, "adamw": 0.001, "rmsprop": 0.001}
# A training is too short if the last fifth of it still removed a tenth of the validation error, and there is
# at least this error left. Schedules that end at 0 always gain something at the end, but less.
_LAST_PART, _LEAST_GAIN, _LEAST_ERROR = 0.2, 0.1, 0.1


def loss_stays(record: TrainingRecord) -> str | None:
    """A training loss that did not fall; trained weights may start low, so they are not judged."""
    if record.updates < _FEWEST_UPDATES or record.starts_trained:
        return None
    first, last = record.at_start("loss"), record.at_end("loss")
    if not last > first * (1 - _LEAST_FALL):
        return None
    return f"The training loss did not fall ({first:.3g} to {last:.3g}): {_why(record)}."


def _why(record: TrainingRecord) -> str:
    recipe = record.recipe
    if record.updates < FEW_UPDATES:
        return f"{record.updates} updates are few; try {longer_training(record)}"
    if recipe.lr_schedule == "stepped":
        return "the learning rate may be too high or too low; try other values in --lr-schedule-params"
    peak, usual = float(record.columns["learning_rate"].max()), _USUAL_RATES.get(recipe.optimizer)
    is_low = usual is not None and peak <= usual / 10
    tried = f"try --learning-rate {peak * (10 if is_low else 0.1):.1g}"
    return f"the learning rate of {peak:.2g} may be too {'low' if is_low else 'high'}; {tried}"


def still_learning(record: TrainingRecord) -> str | None:
    """A validation score that still rose clearly when the training ended."""
    scores = record.scores()
    if record.updates < _FEWEST_UPDATES or record.ended_by is not None or len(scores) < 2:
        return None
    before = list(takewhile(lambda score: score[0] <= record.updates * (1 - _LAST_PART), scores))
    last_update, last = scores[-1]
    if not before or last_update < record.updates or 1 - last < _LEAST_ERROR:
        return None
    # The best before counts, not a validation that happened to be low.
    best = max(value for _, value in before)
    if last - best < _LEAST_GAIN * (1 - best) or not _loss_falls(record):
        return None
    return (
        f"The validation {record.metric} still rose at the end ({best:.2f} to {last:.2f} in the last "
        f"{record.updates - before[-1][0]} of {record.updates} updates): a longer training helps; try "
        f"{longer_training(record)}."
    )


def too_short(record: TrainingRecord) -> str | None:
    """A training of few updates whose validation is still far from right."""
    scores = record.scores()
    if record.updates >= FEW_UPDATES or record.ended_by is not None or not scores:
        return None
    last = scores[-1][1]
    if 1 - last < _LEAST_ERROR:
        return None
    few = "1 update is" if record.updates == 1 else f"{record.updates} updates are"
    return f"{few} few (validation {record.metric} {last:.2f}); try {longer_training(record)}."


def _loss_falls(record: TrainingRecord) -> bool:
    return record.at_end("loss") < record.at_end("loss", tenths_before=2)
