"""Error sentences for invalid values: the option, the value given, the rule, and a value that works."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean, nearest_name, shown
from drivetrain.recipe.fields import (
    bare_type,
    choices_of,
    example_text,
    kind_of,
    option_name,
    params_model,
    written_value,
)
from drivetrain.recipe.params import SCHEDULE_KEYS
from drivetrain.recipe.schema import Recipe

COMMAND_LINE = "command line"
DEFAULT = "default"
RUN_DIRECTORY = "run directory"
RULES = "rules"

_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_KIND_RULES = {
    "switch": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "switch_or_path": "true, false or a path",
    "text": "text, at least one character",
    "mapping": "a mapping, as YAML",
    "several": "a list",
}
_BOUND_ERRORS = {"greater_than_equal", "greater_than", "less_than_equal", "less_than"}


def place(origin: str) -> str:
    """The prefix of a sentence about a value: file and line, or nothing for the command line."""
    return "" if origin in (COMMAND_LINE, DEFAULT, RULES, "") else f"{origin}: "


def explain_validation_error(error: ValidationError, *, origins: Mapping[str, str]) -> BadInputError:
    """The first error that pydantic found in a recipe, as one sentence."""
    details = error.errors(include_url=False)
    # A misspelt key also makes the required key missing; the misspelling is the cause and comes first.
    detail = next((found for found in details if _is_foreign_key(found, details[0])), details[0])
    field = str(detail["loc"][0])
    return BadInputError(place(origins.get(field, "")) + _sentence(detail, field=field))


def _is_foreign_key(detail: ErrorDetails, first: ErrorDetails) -> bool:
    return detail["type"] == "extra_forbidden" and detail["loc"][0] == first["loc"][0]


def bad_value(field: str, value: object, *, origin: str) -> BadInputError:
    """The error for a value whose kind is found to be wrong before pydantic validates it."""
    info = Recipe.model_fields[field]
    return BadInputError(place(origin) + _refusal(info, subject=option_name(field), given=value, field=field))


def _sentence(detail: ErrorDetails, *, field: str) -> str:
    info = Recipe.model_fields[field]
    option = option_name(field)
    params = params_model(info)
    key = str(detail["loc"][1]) if len(detail["loc"]) > 1 else None
    if params is None or key is None:
        return _refusal(info, subject=option, given=detail["input"], field=field, detail=detail)
    if key not in params.model_fields:
        return f"{option} has no key {shown(key)}.{_nearest_key(key, params)}"
    inner = params.model_fields[key]
    example = f"{option} {written_value(_example_mapping(params, key))} works."
    if detail["type"] == "missing":
        return f"{option} needs the key {key}; {example}"
    if detail["type"] == "too_short":
        return f"{key} of {option} is empty, it must name at least one; {example}"
    return f"{key} of {option} is {shown(detail['input'])}, it must be {_rule(inner, detail)}; {example}"


def _nearest_key(key: str, params: type[BaseModel]) -> str:
    known = f" Its keys are {', '.join(params.model_fields)}."
    return did_you_mean(key, params.model_fields) + known


def _example_mapping(params: type[BaseModel], key: str) -> dict[str, Any]:
    """An example mapping with the key, and with the keys that it requires."""
    stepped = SCHEDULE_KEYS["stepped"]
    required = [name for name, info in params.model_fields.items() if info.is_required()]
    names = stepped if key in stepped else dict.fromkeys([key, *required])
    fields = params.model_fields
    return {name: (fields[name].examples or [fields[name].default])[0] for name in names}


def _refusal(
    info: FieldInfo, *, subject: str, given: object, field: str, detail: ErrorDetails | None = None
) -> str:
    if kind_of(info) == "switch":
        return f"{subject}: {shown(given)} is not a valid boolean value; {subject} True works."
    example = example_text(field)
    if kind_of(info) == "choice":
        example = nearest_name(str(given), choices_of(info)) or example
    return f"{subject} is {shown(given)}, it must be {_rule(info, detail)}; {subject} {example} works."


def _rule(info: FieldInfo, detail: ErrorDetails | None) -> str:
    kind = kind_of(info)
    if kind == "choice":
        return "one of " + ", ".join(choices_of(info))
    if detail is not None and detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail is not None and detail["type"] == "finite_number":
        return "a finite number"
    if detail is not None and detail["type"] in _BOUND_ERRORS:
        return _bounds(info)
    if kind == "several" and get_args(bare_type(info))[0] in (int, float):
        return "a list of numbers"
    return _KIND_RULES[kind]


def _bounds(info: FieldInfo) -> str:
    limits = [
        f"{words} {getattr(entry, name)}"
        for entry in info.metadata
        for name, words in _BOUNDS.items()
        if getattr(entry, name, None) is not None
    ]
    return " and ".join(limits)
