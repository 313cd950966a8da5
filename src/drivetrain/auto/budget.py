"""`--budget`: the time that a training may take, as a word or as a duration."""

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.ending import parse_duration_s

__all__ = ["BUDGETS_S", "DEFAULT_BUDGET", "budget_s", "planned_s"]

BUDGETS_S = {"quick": 120.0, "normal": 900.0, "best": 7200.0}
DEFAULT_BUDGET = "normal"

_SHORTEST_S = 10.0
_OF_MAX_TIME = 0.9


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


def planned_s(budget: str | None, *, max_time: object) -> float:
    """The seconds that a command plans for: its budget, or else most of its --max-time."""
    if budget is None and max_time is not None:
        return parse_duration_s(str(max_time)) * _OF_MAX_TIME
    return budget_s(budget or DEFAULT_BUDGET)
