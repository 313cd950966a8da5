"""Layers of settings with the origin of each value, and their merging: later layers replace earlier ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import shown
from drivetrain.recipe.aliases import Target, require_target
from drivetrain.recipe.fields import (
    alternatives,
    default_values,
    fields_with,
    is_optional,
    kind_of,
    option_name,
    params_model,
)
from drivetrain.recipe.messages import COMMAND_LINE, DEFAULT, bad_value, place
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.params import OPTIMIZER_KEYS, OWN_MEANINGS, SCHEDULE_KEYS
from drivetrain.recipe.plain import FALSE_WORDS, TRUE_WORDS
from drivetrain.recipe.precision_file import is_path, read_precision_list, refuse_bare_list
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.yaml_text import YamlDocument

__all__ = [
    "Layer",
    "Setting",
    "layer_of",
    "mean_the_same",
    "members_set",
    "merge_layers",
]

_OPEN = {"none", "null"}


def mean_the_same(field: str, value: Any, other: Any) -> bool:
    """Whether two values of a field are equal once parsed, such as the texts 0.1 and 1e-1."""
    if value == other:
        return True
    try:
        values = [getattr(Recipe.model_validate({field: given}), field) for given in (value, other)]
    except ValidationError:
        return False
    return bool(values[0] == values[1])


@dataclass(frozen=True, slots=True)
class Setting:
    """One option as it was written: key, raw value and origin."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Layer:
    """Values from one place by field name, with the origin of each."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]


def layer_of(settings: Iterable[Setting], *, may_repeat: bool = False) -> Layer:
    """The layer of the settings in one place; `may_repeat` allows two names with the same value."""
    values: dict[str, Any] = {}
    written: dict[str, Setting] = {}
    for setting in settings:
        target = _target(setting)
        field, earlier = target.field, written.get(target.field)
        if earlier is not None and not may_repeat:
            raise BadInputError(
                f"{place(setting.origin)}{shown(setting.key)} sets {option_name(field)} "
                f"a second time, after {earlier.origin}; keep one."
            )
        value = _typed_value(target, setting)
        if earlier is not None and not mean_the_same(field, values[field], value):
            _refuse_spellings(field, earlier, setting)
        values[field], written[field] = value, setting
    return Layer(values, {field: setting.origin for field, setting in written.items()})


def _refuse_spellings(field: str, earlier: Setting, later: Setting) -> None:
    """Refuses two names of one option with different values: nobody can tell which was meant.

    The same name may be repeated on the command line; the last one counts.
    """
    options = [option_name(setting.key) for setting in (earlier, later)]
    if options[0] != options[1]:
        raise BadInputError(
            f"{place(later.origin)}{options[0]} {_given(earlier)} and {options[1]} {_given(later)} both set "
            f"{option_name(field)}, to different values; keep one."
        )


def _given(setting: Setting) -> str:
    value = setting.value
    return shown(" ".join(map(str, value)) if isinstance(value, list | tuple) else value)


def _target(setting: Setting) -> Target:
    try:
        return require_target(setting.key)
    except BadInputError as error:
        raise BadInputError(f"{place(setting.origin)}{error}") from None


def _typed_value(target: Target, setting: Setting) -> Any:
    if not target.inverted and target.switch is None:
        return _written_value(target.field, setting)
    word = str(setting.value).lower()
    if word not in TRUE_WORDS | FALSE_WORDS:
        option = option_name(setting.key)
        raise BadInputError(
            f"{place(setting.origin)}{option}: {shown(setting.value)} is not a valid boolean value; "
            f"{option} True works."
        )
    if target.switch is not None:
        return target.switch[word in FALSE_WORDS]
    return word in FALSE_WORDS


def _written_value(field: str, setting: Setting) -> Any:
    """Resolves what text and YAML leave ambiguous; pydantic checks the types of all fields later."""
    info, value = Recipe.model_fields[field], setting.value
    kind = kind_of(info)
    if kind != "text" and is_optional(info) and isinstance(value, str) and value.lower() in _OPEN:
        return None
    if kind == "mapping":
        return _mapping(field, setting)
    if isinstance(value, bool) and kind not in ("switch", "switch_or_path"):
        raise bad_value(field, value, origin=setting.origin)
    return _several(value) if kind == "several" else value


def _several(value: Any) -> Any:
    """A tuple of words; a single word becomes a tuple too, and numbers from YAML become text."""
    if isinstance(value, str | int | float):
        return (str(value),)
    if not isinstance(value, list | tuple):
        return value
    return tuple(str(item) if isinstance(item, int | float) else item for item in value)


def _mapping(field: str, setting: Setting) -> Any:
    value = setting.value
    if field == "precision_list" and is_path(value):
        value = read_precision_list(Path(value))
    if isinstance(value, str):
        document = YamlDocument(value, source=option_name(field))
        value = {} if document.root is None else document.value(document.root)
    if field == "precision_list" and isinstance(value, list | tuple):
        refuse_bare_list(value, place=place(setting.origin))
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    info = Recipe.model_fields[field]
    if value is None and is_optional(info):
        return None
    if not isinstance(value, Mapping):
        raise bad_value(field, value, origin=setting.origin)
    params = params_model(info)
    if params is None:
        return dict(value)
    _refuse_key_twice(value, setting)
    return _closed_keys(value, known=params.model_fields)


def _refuse_key_twice(params: Mapping[Any, Any], setting: Setting) -> None:
    """Refuses a key that is given with dashes and with underscores, with different values."""
    spelt: dict[str, Any] = {}
    for key in params:
        earlier = spelt.setdefault(str(key).replace("-", "_"), key)
        if params[earlier] != params[key]:
            raise BadInputError(
                f"{place(setting.origin)}{option_name(setting.key)} has {shown(earlier)} and {shown(key)}, "
                "two spellings of one key, with different values; keep one."
            )


def _closed_keys(params: Mapping[Any, Any], *, known: Iterable[str]) -> dict[str, Any]:
    """Drops known keys without a value; unknown keys stay, so that validation reports them."""
    named = {str(key).replace("-", "_"): value for key, value in params.items()}
    return {key: value for key, value in named.items() if value is not None or key not in known}


def merge_layers(layers: Sequence[Layer]) -> Layer:
    """The defaults, overridden by every layer in turn."""
    values = dict(default_values())
    origins = dict.fromkeys(values, DEFAULT)
    for layer in layers:
        for field in (*_replaced(layer), *_of_another_model(layer, values)):
            values[field], origins[field] = default_values()[field], DEFAULT
        _drop_foreign_keys(values, layer)
        values.update(layer.values)
        origins.update(layer.origins)
    return Layer(values, origins)


def members_set(layer: Layer, group: Sequence[str]) -> list[str]:
    """The members of a group of alternatives that a layer sets on purpose.

    A recipe written out in full names all of them, so a default value that nobody typed does not count if
    another member of the group is set too.
    """
    given = [field for field in group if layer.values.get(field) is not None]
    if len(given) < 2:
        return given
    return [
        field for field in given if layer.origins.get(field) == COMMAND_LINE or not _is_default(layer, field)
    ]


def _is_default(layer: Layer, field: str) -> bool:
    return str(layer.values[field]) == str(default_values()[field])


def _replaced(layer: Layer) -> list[str]:
    """The fields of earlier layers that an alternative in this layer replaces."""
    groups = [group for group in alternatives() if members_set(layer, group)]
    fields = [field for group in groups for field in group]
    schedule_params = layer.values.get("lr_schedule_params") or {}
    sets_rate = "initial_learning_rate" in schedule_params or "values" in schedule_params
    return [*fields, "learning_rate"] if sets_rate else fields


def _of_another_model(layer: Layer, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The model's own options, if this layer names another model: they are reset to their defaults."""
    is_another = layer.values.get("model", values["model"]) != values["model"]
    return fields_with(Fact.OF_A_MODEL) if is_another else ()


def _drop_foreign_keys(values: dict[str, Any], layer: Layer) -> None:
    """Drops parameters that an earlier layer set for another optimiser, schedule or learning rate."""
    _keep_keys(values, layer, choice="optimizer", params="optimizer_params", keys=OPTIMIZER_KEYS)
    _keep_keys(values, layer, choice="lr_schedule", params="lr_schedule_params", keys=SCHEDULE_KEYS)
    if layer.values.get("learning_rate") is not None:
        kept = dict(values["lr_schedule_params"])
        kept.pop("initial_learning_rate", None)
        values["lr_schedule_params"] = kept


def _keep_keys(
    values: dict[str, Any], layer: Layer, *, choice: str, params: str, keys: Mapping[str, Sequence[str]]
) -> None:
    earlier = str(values[choice]).lower()
    chosen = str(layer.values.get(choice, earlier)).lower()
    if chosen == earlier or chosen not in keys:
        return
    values[params] = {
        key: value
        for key, value in values[params].items()
        if key in keys[chosen] and OWN_MEANINGS.get(key) not in (earlier, chosen)
    }
