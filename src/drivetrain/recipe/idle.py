"""Options that a command which trains only to measure takes and has no use for."""

from collections.abc import Container

from drivetrain.recipe.fields import option_name, written_value
from drivetrain.recipe.given import Given
from drivetrain.recipe.schema import Recipe, field_note

__all__ = ["idle_warnings"]

_IDLE_GROUPS = ("length", "events", "run")
_USED_FIELDS = frozenset({"device", "num_threads", "seed", "verbosity"})


def idle_warnings(given: Given, *, command: str, fields: Container[str]) -> list[str]:
    """Says which typed options do nothing: those of a training's course, and `fields`."""
    return [
        f"{option_name(field)} {written_value(given.value(field))} has no effect on {command}."
        for field in Recipe.model_fields
        if given.is_typed(field) and (field in fields or _is_of_the_course(field))
    ]


def _is_of_the_course(field: str) -> bool:
    return field_note(field).group in _IDLE_GROUPS and field not in _USED_FIELDS
