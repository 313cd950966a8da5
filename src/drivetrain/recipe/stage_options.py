"""`--stage-options`: reads and checks the settings of single pipeline stages."""

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["STAGE_KEYS", "plain_stage_options"]

STAGE_KEYS = ("stage", "recomputation", "precision", "compile", "offload")
_EXAMPLE = "such as '{stage: 0, recomputation: true}'"
_SWITCHES = {"recomputation", "compile", "offload"}
_PRECISIONS = ("32.32", "16.32", "16.16")


def plain_stage_options(value: Any) -> Any:
    """One mapping per stage, sorted by stage; mappings without the key `stage` are numbered from 0."""
    if not isinstance(value, list | tuple):
        return value
    items = [item for entry in value for item in _items(entry)]
    options = [_checked(item, default_stage=index) for index, item in enumerate(items)]
    if len(items) == 1 and "stage" not in items[0]:
        raise ValueError(f"a mapping that names its stage, {_EXAMPLE}, or one mapping for each stage")
    stages = [option["stage"] for option in options]
    if len(set(stages)) < len(stages):
        raise ValueError(f"at most one mapping per stage, {_EXAMPLE}")
    return tuple(sorted(options, key=lambda option: int(option["stage"])))


def _items(entry: Any) -> list[Any]:
    """The mappings in one command-line argument, which may hold a single mapping or a list."""
    if isinstance(entry, str):
        try:
            entry = yaml.safe_load(entry)
        except yaml.YAMLError:
            raise ValueError(f"YAML mappings, {_EXAMPLE}") from None
    return entry if isinstance(entry, list) else [entry]


def _checked(item: Any, *, default_stage: int) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise ValueError(f"YAML mappings, {_EXAMPLE}")
    option = {"stage": default_stage, **{str(key).replace("-", "_"): given for key, given in item.items()}}
    unknown = [key for key in option if key not in STAGE_KEYS]
    if unknown:
        raise ValueError(
            f"mappings with the keys {', '.join(STAGE_KEYS)} ({unknown[0]} is not one of them), {_EXAMPLE}"
        )
    if type(option["stage"]) is not int or option["stage"] < 0:
        raise ValueError(f"mappings whose stage is a whole number of at least 0, {_EXAMPLE}")
    return {key: _value(key, option[key]) for key in STAGE_KEYS if key in option}


def _value(key: str, given: Any) -> Any:
    if key in _SWITCHES and not isinstance(given, bool):
        raise ValueError(f"mappings whose {key} is true or false, {_EXAMPLE}")
    if key == "precision":
        given = str(given)
        if given not in _PRECISIONS:
            raise ValueError(f"mappings whose precision is one of {', '.join(_PRECISIONS)}")
    return given
