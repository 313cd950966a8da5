"""The names that Keras layers have in the torch module: their own, where these are unique."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from drivetrain.models.from_keras.walk import Visit

__all__ = ["names_of"]

_OWN_ATTRIBUTES = (
    "steps",
    "result",
    "training",
    "sample_shape",
    "layer_aliases",
    "input_shape",
    "output",
    "log_probabilities",
)


def names_of(visits: Sequence[Visit]) -> dict[int, str]:
    """The name of each layer by its identity, of one visit each.

    Keras numbers layers without a name through the whole process. Here the numbers of a model begin at the
    first of each kind, so that a model that is built again has the same names. If several models have layers
    of one name, the names of the models precede it.
    """
    firsts = _first_numbers(visits)
    own_names = {id(visit.layer): _renumbered(visit.layer, firsts) for visit in visits}
    uses = Counter(own_names.values())
    names: dict[int, str] = {}
    for visit in visits:
        own = own_names[id(visit.layer)]
        name = (own if uses[own] == 1 else "_".join((*visit.around, own))).replace(".", "_")
        # A torch module must not hide its own attributes, such as `half`.
        while name in names.values() or hasattr(nn.Module, name) or name in _OWN_ATTRIBUTES:
            name = f"{name}_"
        names[id(visit.layer)] = name
    return names


def _first_numbers(visits: Sequence[Visit]) -> dict[str, int]:
    """The smallest number of the unnamed layers of each kind."""
    firsts: dict[str, int] = {}
    for visit in visits:
        kind, number = _parts(visit.layer)
        if number is not None:
            firsts[kind] = min(number, firsts.get(kind, number))
    return firsts


def _renumbered(layer: Any, firsts: Mapping[str, int]) -> str:
    kind, number = _parts(layer)
    if number is None:
        return str(layer.name)
    return kind if number == firsts[kind] else f"{kind}_{number - firsts[kind]}"


def _parts(layer: Any) -> tuple[str, int | None]:
    """The kind and number of a name that Keras gave; no number for a name that the user gave."""
    kind = _snake_case(type(layer).__name__)
    found = re.fullmatch(rf"{re.escape(kind)}(?:_(\d+))?", layer.name)
    return kind, None if found is None else int(found[1] or 0)


def _snake_case(name: str) -> str:
    """A class name as Keras writes it in the names of layers: conv2d, batch_normalization, re_lu."""
    parted = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub("([a-z])([A-Z])", r"\1_\2", parted).lower()
