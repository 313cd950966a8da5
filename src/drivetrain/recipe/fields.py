"""What the command line, the messages and the layers need to know of the recipe's fields."""

import json
import shlex
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from drivetrain.recipe.schema import Recipe

FieldKind = Literal["switch", "whole", "number", "text", "choice", "mapping", "several"]

_SCALAR_KINDS: Mapping[Any, FieldKind] = {bool: "switch", int: "whole", float: "number", str: "text"}


def option_name(field: str) -> str:
    """The command-line option of a field: --micro-batch-size."""
    return "--" + field.replace("_", "-")


def bare_type(info: FieldInfo) -> Any:
    """A field's type without None and without annotations."""
    annotation = info.annotation
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def kind_of(info: FieldInfo) -> FieldKind:
    """How a field is written."""
    bare = bare_type(info)
    origin = get_origin(bare)
    if bare in _SCALAR_KINDS:
        return _SCALAR_KINDS[bare]
    if origin is Literal:
        return "choice"
    return "several" if origin in (tuple, list) else "mapping"


def choices_of(info: FieldInfo) -> tuple[str, ...]:
    """The names a choice knows."""
    return get_args(bare_type(info))


def is_optional(info: FieldInfo) -> bool:
    """Whether a field may be left open with `none`."""
    return NoneType in get_args(info.annotation)


def params_model(info: FieldInfo) -> type[BaseModel] | None:
    """The typed mapping behind a field such as `optimizer_params`, else None."""
    bare = bare_type(info)
    return bare if isinstance(bare, type) and issubclass(bare, BaseModel) else None


def plain_values(recipe: Recipe) -> dict[str, Any]:
    """Every field as plain data, in the schema's order; open keys of typed mappings are left out."""
    return {field: plain_value(getattr(recipe, field)) for field in Recipe.model_fields}


def plain_value(value: Any) -> Any:
    """A field's value as plain data."""
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value


@cache
def default_values() -> Mapping[str, Any]:
    """Every field's default as plain data."""
    return plain_values(Recipe())


def example_text(field: str) -> str:
    """A value of a field that works, as a person would type it; an example says more than a default."""
    examples = Recipe.model_fields[field].examples
    return written_value(examples[0] if examples else default_values()[field])


def written_value(value: Any) -> str:
    """A value as a person would type it on the command line."""
    if isinstance(value, Mapping | list):
        return f"'{json.dumps(value)}'"
    if isinstance(value, tuple):
        return " ".join(map(written_value, value))
    if isinstance(value, str) and any(map(str.isspace, value)):
        return shlex.quote(value)
    return "none" if value is None else str(value)
