"""The option that makes a training longer."""

from drivetrain.core.errors import BadInputError
from drivetrain.findings.record import TrainingRecord
from drivetrain.recipe.ending import parse_duration_s

__all__ = ["FEW_UPDATES", "longer_training"]

# Networks from scratch hardly learn anything in fewer updates, whatever the other options.
FEW_UPDATES = 100
_LONGER_BUDGETS = {None: "best", "quick": "normal", "normal": "best"}


def longer_training(record: TrainingRecord) -> str:
    """The option that makes a training about twice as long."""
    recipe = record.recipe
    if record.chosen & {"num_epochs", "max_updates"}:
        longer = _longer_budget(recipe.budget)
        if longer is not None:
            return f"--budget {longer}"
    if recipe.max_updates is not None:
        return f"--max-updates {2 * recipe.max_updates}"
    return f"--num-epochs {2 * recipe.num_epochs}"


def _longer_budget(budget: str | None) -> str | None:
    if budget in _LONGER_BUDGETS:
        return _LONGER_BUDGETS[budget]
    try:
        seconds = 2 * parse_duration_s(str(budget))
    except BadInputError:
        return None
    return f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}"
