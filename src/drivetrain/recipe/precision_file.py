"""Reads the file of `--precision-list`: which layers run in 16 bits, by kind or by name.

    half: [conv, linear, norm, "encoder.*"]
    float32: [head]

An entry is a kind of layer, or a shell pattern for layer names; a name includes all layers inside it.
Layers that `half` does not list run in float32; `float32` lists exceptions from `half`.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean, shown
from drivetrain.recipe.params import PrecisionList
from drivetrain.recipe.yaml_text import read_yaml_file

__all__ = ["LAYER_KINDS", "is_path", "read_precision_list", "refuse_bare_list"]

LAYER_KINDS = ("conv", "linear", "norm", "pool", "activation", "upsample", "dropout", "other")
_EXAMPLE = "`half: [conv, linear]` works"


def is_path(value: object) -> bool:
    """Whether the option's value is a path; otherwise it is the lists themselves, as YAML."""
    return isinstance(value, PathLike) or (
        isinstance(value, str) and not value.lstrip().startswith(("{", "["))
    )


def read_precision_list(path: Path) -> dict[str, Any]:
    """The lists in a YAML or JSON file; whether the model has such layers is checked when it is built."""
    option = f"--precision-list {path}"
    if not path.is_file():
        raise BadInputError(f"{option} is not a file; name a YAML or JSON file in which {_EXAMPLE}.")
    document = read_yaml_file(path, source=option)
    lists = None if document.root is None else document.value(document.root)
    if not isinstance(lists, dict) or not lists:
        raise BadInputError(f"{option} does not contain lists of layers; {_EXAMPLE}.")
    for key, entries in lists.items():
        if key not in PrecisionList.model_fields:
            raise BadInputError(f"{option} has an unknown list {shown(key)}.{_known(str(key))}")
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
            raise BadInputError(f"{key} in {option} is not a list of layer kinds and names; {_EXAMPLE}.")
    if not lists.get("half"):
        raise BadInputError(f"{option} lists no layer under half, so all would run in float32; {_EXAMPLE}.")
    return lists


def refuse_bare_list(entries: Sequence[Any], *, place: str) -> NoReturn:
    """Raises the error for a list without its key, with the given list as the example if it is valid."""
    are_names = all(isinstance(entry, str) and entry for entry in entries)
    names = ", ".join(entries) if entries and are_names else "conv"
    given = shown("[" + ", ".join(map(str, entries)) + "]")
    raise BadInputError(
        f"{place}--precision-list {given} is a list without a key; put it under the key half, for example "
        f"'{{half: [{names}]}}'."
    )


def _known(key: str) -> str:
    known = list(PrecisionList.model_fields)
    return did_you_mean(key, known) or f" Its lists are {' and '.join(known)}."
