"""The option that makes a training longer."""

from math import ceil

from drivetrain.core.errors import BadInputError
from drivetrain.findings.record import TrainingRecord
from drivetrain.recipe.ending import parse_duration_s

__all__ = ["FEW_UPDATES", "longer_training"]

# Networks from scratch hardly learn anything in fewer updates, whatever the other options.
FEW_UPDATES = 100
# What is proposed after fewer: a number that is not called few again.
_ENOUGH_UPDATES = 200
_TIMES = 2
_MINUTE_S = 60
_LONGER_BUDGETS = {None: "best", "quick": "normal", "normal": "best"}


def longer_training(record: TrainingRecord) -> str:
    """The option that makes a training twice as long, or longer if that were still few updates."""
    recipe = record.recipe
    times = max(_TIMES, _ENOUGH_UPDATES / max(1, record.updates) if record.updates < FEW_UPDATES else 0)
    if record.chosen & {"num_epochs", "max_updates"}:
        longer = _longer_budget(recipe.budget, times=times)
        if longer is not None:
            return f"--budget {longer}"
    if recipe.max_updates is not None:
        return f"--max-updates {ceil(times * recipe.max_updates)}"
    return f"--num-epochs {ceil(times * recipe.num_epochs)}"


def _longer_budget(budget: str | None, *, times: float) -> str | None:
    if budget in _LONGER_BUDGETS:
        return _LONGER_BUDGETS[budget]
    try:
        seconds = ceil(times * parse_duration_s(str(budget)))
    except BadInputError:
        return None
    if times > _TIMES and seconds > _MINUTE_S:
        seconds = _MINUTE_S * ceil(seconds / _MINUTE_S)
    return f"{seconds // _MINUTE_S}m" if seconds % _MINUTE_S == 0 else f"{seconds}"
