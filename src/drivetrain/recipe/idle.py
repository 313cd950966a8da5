"""Options that a command which trains only to measure takes and has no use for."""

from drivetrain.recipe.fields import idle_fields, option_name, written_value
from drivetrain.recipe.given import Given
from drivetrain.recipe.notes import Measuring
from drivetrain.recipe.schema import Recipe

__all__ = ["idle_warnings"]


def idle_warnings(given: Given, *, command: str, measurement: Measuring) -> list[str]:
    """Says which typed options do nothing in a measurement."""
    idle = idle_fields(measurement)
    return [
        f"{option_name(field)} {written_value(given.value(field))} has no effect on {command}."
        for field in Recipe.model_fields
        if given.is_typed(field) and field in idle
    ]
