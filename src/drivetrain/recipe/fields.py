"""Queries on the recipe's fields: option name, kind, default, example, and lists made from the notes."""

import json
import shlex
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from drivetrain.catalogue.tasks import TaskName
from drivetrain.recipe.notes import (
    AlternativeFor,
    Fact,
    FieldNote,
    Group,
    IdleWith,
    Mark,
    Measuring,
    NeedsStages,
    OfAugmentation,
    OfTask,
    note_of,
)
from drivetrain.recipe.schema import Recipe

FieldKind = Literal["switch", "switch_or_path", "whole", "number", "text", "choice", "mapping", "several"]

_SCALAR_KINDS: Mapping[Any, FieldKind] = {bool: "switch", int: "whole", float: "number", str: "text"}
_OF_THE_COURSE: frozenset[Group] = frozenset({"length", "events", "run"})
_OF_MODELS: frozenset[Group] = frozenset({"model", "pipeline", "optimisation"})
# The groups of options that a measurement ignores; measurements not listed here ignore _OF_THE_COURSE.
_IDLE_GROUPS: Mapping[Measuring, frozenset[Group]] = {
    Measuring.INFERENCE: _OF_THE_COURSE | _OF_MODELS | {"data", "batch"},
    Measuring.DELIVERY: _OF_THE_COURSE | _OF_MODELS,
}

_MarkT = TypeVar("_MarkT", bound=Mark)
_UrgentT = TypeVar("_UrgentT", OfTask, NeedsStages, IdleWith)


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
    """The kind of value that a field takes on the command line."""
    if set(get_args(info.annotation)) == {bool, str}:
        return "switch_or_path"
    bare = bare_type(info)
    origin = get_origin(bare)
    if bare in _SCALAR_KINDS:
        return _SCALAR_KINDS[bare]
    if origin is Literal:
        return "choice"
    return "several" if origin in (tuple, list) else "mapping"


def choices_of(info: FieldInfo) -> tuple[str, ...]:
    """The names that a choice accepts."""
    return get_args(bare_type(info))


def is_optional(info: FieldInfo) -> bool:
    """Whether a field accepts `none`."""
    return NoneType in get_args(info.annotation)


def params_model(info: FieldInfo) -> type[BaseModel] | None:
    """The pydantic model of a mapping field such as `optimizer_params`; None for other fields."""
    bare = bare_type(info)
    return bare if isinstance(bare, type) and issubclass(bare, BaseModel) else None


def plain_values(recipe: Recipe) -> dict[str, Any]:
    """Every field as plain data, in the schema's order; keys that are None in mappings are left out."""
    return {field: plain_value(getattr(recipe, field)) for field in Recipe.model_fields}


def plain_value(value: Any) -> Any:
    """A field's value as plain data."""
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value


@cache
def default_values() -> Mapping[str, Any]:
    """Every field's default as plain data."""
    return plain_values(Recipe())


def example_text(field: str) -> str:
    """A valid value of a field as typed on the command line: its example, or else its default."""
    examples = Recipe.model_fields[field].examples
    return written_value(examples[0] if examples else default_values()[field])


def written_value(value: Any) -> str:
    """A value as one would type it on the command line."""
    if isinstance(value, Mapping | list):
        return f"'{json.dumps(value)}'"
    if isinstance(value, tuple):
        return " ".join(map(written_value, value))
    if isinstance(value, str) and any(map(str.isspace, value)):
        return shlex.quote(value)
    return "none" if value is None else str(value)


def marked(kind: type[_MarkT], *, schema: type[Recipe] = Recipe) -> list[tuple[str, _MarkT]]:
    """All pairs of a field and a mark of the given kind, in the schema's order."""
    return [
        (field, mark)
        for field, info in schema.model_fields.items()
        for mark in note_of(info).marks
        if isinstance(mark, kind)
    ]


def fields_with(fact: Fact, *, schema: type[Recipe] = Recipe) -> tuple[str, ...]:
    """The fields that carry a fact."""
    return tuple(field for field, mark in marked(Fact, schema=schema) if mark is fact)


def defaults_with(fact: Fact, *, schema: type[Recipe] = Recipe) -> dict[str, Any]:
    """The fields that carry a fact, with their defaults."""
    return {
        field: schema.model_fields[field].get_default(call_default_factory=True)
        for field in fields_with(fact, schema=schema)
    }


def fields_of_task(task: TaskName, *, schema: type[Recipe] = Recipe) -> tuple[str, ...]:
    """The fields that belong to one task, most urgent first."""
    return tuple(
        field for field, mark in _most_urgent_first(marked(OfTask, schema=schema)) if mark.task == task
    )


def fields_of_stages(*, schema: type[Recipe] = Recipe) -> tuple[str, ...]:
    """The fields that have no effect without pipeline stages, most urgent first."""
    return tuple(field for field, _ in _most_urgent_first(marked(NeedsStages, schema=schema)))


def idle_conditions(*, schema: type[Recipe] = Recipe) -> list[tuple[str, IdleWith]]:
    """Fields with a condition under which they have no effect, most urgent first."""
    return _most_urgent_first(marked(IdleWith, schema=schema))


def fields_of_validation(*, schema: type[Recipe] = Recipe) -> tuple[str, ...]:
    """The fields that have no effect without validation, most urgent first."""
    return tuple(field for field, mark in idle_conditions(schema=schema) if mark.cause == "validation")


def without_augmentation(*, schema: type[Recipe] = Recipe) -> dict[str, Any]:
    """The values that turn every augmentation off."""
    return {field: mark.off for field, mark in marked(OfAugmentation, schema=schema)}


def alternatives(*, schema: type[Recipe] = Recipe) -> list[tuple[str, ...]]:
    """Groups of fields that set the same thing, such as the ways to set the logging interval."""
    found = marked(AlternativeFor, schema=schema)
    choices = dict.fromkeys(mark.choice for _, mark in found)
    return [tuple(field for field, mark in found if mark.choice == choice) for choice in choices]


def idle_fields(measurement: Measuring, *, schema: type[Recipe] = Recipe) -> frozenset[str]:
    """The fields that a measurement ignores."""
    fields = schema.model_fields.items()
    return frozenset(field for field, info in fields if _is_idle(note_of(info), measurement))


def _is_idle(note: FieldNote, measurement: Measuring) -> bool:
    if measurement in note.used_in:
        return False
    return note.group in _IDLE_GROUPS.get(measurement, _OF_THE_COURSE) or measurement in note.idle_in


def _most_urgent_first(found: list[tuple[str, _UrgentT]]) -> list[tuple[str, _UrgentT]]:
    return sorted(found, key=lambda entry: -entry[1].urgency)
