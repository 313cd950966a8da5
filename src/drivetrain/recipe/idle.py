"""Warnings about options that have no effect on a benchmark or on `verify`."""

from drivetrain.recipe.fields import idle_fields, option_name, written_value
from drivetrain.recipe.given import Given
from drivetrain.recipe.notes import Measuring
from drivetrain.recipe.schema import Recipe

__all__ = ["idle_warnings"]


def idle_warnings(given: Given, *, command: str, measurement: Measuring) -> list[str]:
    """One warning for each typed option that a measurement ignores."""
    idle = idle_fields(measurement)
    return [
        f"{option_name(field)} {written_value(given.value(field))} has no effect on {command}."
        for field in Recipe.model_fields
        if given.is_typed(field) and field in idle
    ]
