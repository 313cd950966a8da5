"""`--budget`: the time that a training may take, as a word or as a duration."""

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.ending import parse_duration_s

__all__ = ["BUDGETS_S", "DEFAULT_BUDGET", "budget_s"]

BUDGETS_S = {"quick": 120.0, "normal": 900.0, "best": 7200.0}
DEFAULT_BUDGET = "normal"

_SHORTEST_S = 10.0


def budget_s(text: str) -> float:
    """The seconds of a budget; raises BadInputError for other words, and for less than ten seconds."""
    if text in BUDGETS_S:
        return BUDGETS_S[text]
    try:
        seconds = parse_duration_s(text)
    except BadInputError:
        raise BadInputError(
            f"--budget {text} is neither quick, normal or best nor a duration; --budget 10m works."
        ) from None
    if seconds < _SHORTEST_S:
        raise BadInputError(
            f"--budget {text} is too short to start a training; --budget {_SHORTEST_S:g}s works."
        )
    return seconds
