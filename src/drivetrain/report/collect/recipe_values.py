"""The recipe of a run: every option with its value, and where that comes from."""

from collections.abc import Mapping
from typing import Any

from drivetrain.recipe.fields import default_values, option_name, written_value
from drivetrain.recipe.messages import DEFAULT, RULES
from drivetrain.recipe.schema import Recipe, field_note
from drivetrain.report.contents import RecipeValue

__all__ = ["recipe_values"]

# Of runs of older versions, which kept no origins.
_NOT_KEPT = "set (where is not known)"
# Of options that follow from others, such as the number of a fold.
_DERIVED = "derived"
_OTHER_GROUP = "other"


def recipe_values(
    recipe: Mapping[str, Any], *, origins: Mapping[str, str] | None, reasons: Mapping[str, str]
) -> list[RecipeValue]:
    """The options in the order of the schema; those that this version does not know come last."""
    known = [field for field in Recipe.model_fields if field in recipe]
    unknown = [field for field in recipe if field not in Recipe.model_fields]
    return [_value(field, recipe[field], origins, reasons) for field in (*known, *unknown)]


def _value(
    field: str, value: Any, origins: Mapping[str, str] | None, reasons: Mapping[str, str]
) -> RecipeValue:
    group = field_note(field).group if field in Recipe.model_fields else _OTHER_GROUP
    entry = RecipeValue(
        group=group,
        option=option_name(field),
        value=_written(value),
        origin=_origin(field, value, origins, is_by_rule=field in reasons),
    )
    if field in reasons:
        entry["reason"] = reasons[field]
    return entry


def _written(value: Any) -> str:
    if value in ((), []):
        return "none"
    return written_value(tuple(value) if isinstance(value, list) else value).strip("'")


def _origin(field: str, value: Any, origins: Mapping[str, str] | None, *, is_by_rule: bool) -> str:
    if origins is not None and field in origins:
        return origins[field]
    if is_by_rule:
        return RULES
    default = default_values().get(field)
    plain = (tuple(each) if isinstance(each, list) else each for each in (value, default))
    if next(plain) == next(plain):
        return DEFAULT
    return _NOT_KEPT if origins is None else _DERIVED
