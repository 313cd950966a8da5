"""Validators of the recipe's fields, run before or after pydantic checks the type.

Their errors state only the rule ("at least 1"); `drivetrain.recipe.messages` puts the option before it.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from os import PathLike, fspath
from typing import Any

TRUE_WORDS = frozenset({"true", "t", "1", "yes", "y", "on"})
FALSE_WORDS = frozenset({"false", "f", "0", "no", "n", "off"})
_PLAIN_RULE = "plain data: text, numbers, true or false, lists and mappings with text keys"


def lower_text(value: Any) -> Any:
    """Lower case, as names of choices ignore case."""
    return value.lower() if isinstance(value, str) else value


def split_words(value: Any) -> Any:
    """Splits "0 1 1 0", as YAML or a quoted shell argument has it, into its words."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list | tuple):
        return tuple(word for item in value for word in (item.split() if isinstance(item, str) else [item]))
    return value


def split_commas(value: Any) -> Any:
    """Splits "car, tree" into its names, which may contain spaces."""
    if isinstance(value, str):
        return tuple(name for part in value.split(",") if (name := part.strip()))
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(name for item in value for name in split_commas(item))
    return value


def kebab_text(value: Any) -> Any:
    """Lower case with dashes, so that zero_bubble means zero-bubble."""
    return value.lower().replace("_", "-") if isinstance(value, str) else value


def schedule_name(value: Any) -> Any:
    """The name of a pipeline schedule; IPU software calls 1F1B "interleaved"."""
    name = kebab_text(value)
    return "1f1b" if name == "interleaved" else name


def exchange_target(value: Any) -> Any:
    """The value of --optimise-for; IPU software writes "cycles" for speed."""
    lowered = lower_text(value)
    return "speed" if lowered == "cycles" else lowered


def number_as_text(value: Any) -> Any:
    """Turns a number from YAML or Python into text: the field keeps exact text such as 1/3."""
    is_number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    return str(value) if is_number else value


def loss_scale(value: Any) -> Any:
    """A fixed loss scale, or the word `dynamic`."""
    if lower_text(value) == "dynamic":
        return "dynamic"
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ValueError("a number of at least 0, or dynamic")
    return number


def path_as_text(value: Any) -> Any:
    """Accepts path objects as well as text."""
    return fspath(value) if isinstance(value, PathLike) else value


def switch_or_path(value: Any) -> Any:
    """A boolean, also as one of the words that stand for one; any other text is a path."""
    plain = path_as_text(value)
    if isinstance(plain, int):
        plain = str(plain)
    if not isinstance(plain, str) or not plain:
        raise ValueError("true, false or a path")
    word = plain.lower()
    return word in TRUE_WORDS if word in TRUE_WORDS | FALSE_WORDS else plain


def non_zero(value: int | None) -> int | None:
    """For a count where -1 has a meaning and 0 has none."""
    if value == 0:
        raise ValueError("at least 1, or -1 to use the size of the data set")
    return value


def plain_mapping(value: Any) -> Any:
    """A mapping that survives writing to YAML and reading back; tuples become lists."""
    return plain_data(value) if isinstance(value, Mapping) else value


def plain_data(value: Any) -> Any:
    """The value reduced to types that YAML stores; raises ValueError for any other type."""
    if isinstance(value, Mapping):
        return {_plain_key(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    for plain_type in (bool, int, float, str):
        if isinstance(value, plain_type):
            return plain_type(value)
    if value is None:
        return None
    raise ValueError(_PLAIN_RULE)


def _plain_key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(_PLAIN_RULE)
    return str(key)


def dataset_alias(value: Any) -> Any:
    """Replaces an alias of a data set by its name, so that both lead to the same run directory."""
    return "imagenet" if value == "gc-imagenet" else value
