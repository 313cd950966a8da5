"""A recipe together with the origin of each value, for the checks and their messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain.recipe.fields import default_values, option_name, plain_value, written_value
from drivetrain.recipe.messages import COMMAND_LINE, DEFAULT, RULES, RUN_DIRECTORY
from drivetrain.recipe.schema import Recipe


@dataclass(frozen=True, slots=True)
class Given:
    """A recipe and the origin of each field; a recipe built in Python has no origins."""

    recipe: Recipe
    origins: Mapping[str, str]

    def value(self, field: str) -> Any:
        """A field as plain data."""
        return plain_value(getattr(self.recipe, field))

    def is_typed(self, field: str) -> bool:
        """Whether a field was given on the command line."""
        return self.origins.get(field) == COMMAND_LINE

    def is_asked(self, field: str) -> bool:
        """Whether a value was chosen on purpose: it was typed, or differs from the default."""
        return self.is_typed(field) or self.value(field) != default_values()[field]

    def is_overruled(self, field: str, *, by: str) -> bool:
        """Whether `by` was set in a later place than `field`, for example typed over a recipe file."""
        return not self.is_typed(field) and not self.same_source(field, by)

    def same_source(self, one: str, other: str) -> bool:
        """Whether two fields were set in the same place, such as one file."""
        return self._source(one) == self._source(other)

    def option(self, field: str) -> str:
        """An option with its value, and with file and line if it comes from a file."""
        origin = self.origins.get(field, "")
        place = "" if origin in ("", COMMAND_LINE, DEFAULT, RULES, RUN_DIRECTORY) else f" ({origin})"
        return f"{option_name(field)} {written_value(self.value(field))}{place}"

    def _source(self, field: str) -> str:
        """The file or place of a field's value, without the line."""
        return self.origins.get(field, "").rpartition(":")[0] or self.origins.get(field, "")
