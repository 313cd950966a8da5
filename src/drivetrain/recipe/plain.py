"""What the recipe's fields make of a value before or after its type is checked.

Each message states the rule alone ("at least 1"): whoever shows it puts the option's name before it.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from os import PathLike, fspath
from typing import Any

_PLAIN_RULE = "plain data: text, numbers, true or false, lists and mappings with text keys"


def lower_text(value: Any) -> Any:
    """Names of choices mean the same in any case."""
    return value.lower() if isinstance(value, str) else value


def split_words(value: Any) -> Any:
    """Numbers that stand in one text, as YAML and a quoting shell may hand them over."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list | tuple):
        return tuple(word for item in value for word in (item.split() if isinstance(item, str) else [item]))
    return value


def kebab_text(value: Any) -> Any:
    """Names of choices of two words, with either kind of dash."""
    return value.lower().replace("_", "-") if isinstance(value, str) else value


def schedule_name(value: Any) -> Any:
    """A pipeline schedule; what the IPU systems call interleaved is 1F1B everywhere else."""
    name = kebab_text(value)
    return "1f1b" if name == "interleaved" else name


def exchange_target(value: Any) -> Any:
    """Another system's word for the same wish."""
    lowered = lower_text(value)
    return "speed" if lowered == "cycles" else lowered


def number_as_text(value: Any) -> Any:
    """YAML and Python write a frequency as a number; the field keeps it as exact text."""
    is_number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    return str(value) if is_number else value


def loss_scale(value: Any) -> Any:
    """A static factor, or the word for one that is found as the training goes."""
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
    """Python names a folder by a path object as well."""
    return fspath(value) if isinstance(value, PathLike) else value


def non_zero(value: int | None) -> int | None:
    """For a count where -1 means something and 0 does not."""
    if value == 0:
        raise ValueError("at least 1, or -1 for what the data set gives")
    return value


def plain_mapping(value: Any) -> Any:
    """A mapping that YAML writes and reads back without loss; lists stand for tuples."""
    return plain_data(value) if isinstance(value, Mapping) else value


def plain_data(value: Any) -> Any:
    """The value as YAML would hold it; refuses what YAML cannot hold."""
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
    """Another spelling of a data set as its one name, so that both are the same run."""
    return "imagenet" if value == "gc-imagenet" else value
