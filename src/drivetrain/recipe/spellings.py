"""Two spellings of one option in one place: allowed where both say the same."""

from typing import Any

from pydantic import ValidationError

from drivetrain.recipe.schema import Recipe

__all__ = ["mean_the_same"]


def mean_the_same(field: str, value: Any, other: Any) -> bool:
    """Whether a field makes the same of two values, such as the texts 0.1 and 1e-1."""
    if value == other:
        return True
    try:
        values = [getattr(Recipe.model_validate({field: given}), field) for given in (value, other)]
    except ValidationError:
        return False
    return bool(values[0] == values[1])
