"""Finds attributes of a model that an update binds to other objects: a replayed update would not do that."""

from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.models.kept_values import parts_in
from drivetrain.models.module_values import MISSING, Place, moving_places, places_of, was_rehearsed

__all__ = ["bound_objects", "obstacle_of_objects", "values_elsewhere"]

_Objects = dict[str, list[Any]]


def bound_objects(model: nn.Module) -> _Objects:
    """The tensors and collections of a model by name, each with its parts.

    If a rehearsal has told which values move, only those: others may be activations that nobody reads.
    """
    places = moving_places(model) if was_rehearsed(model) else places_of(model)
    return {place.name: list(parts_in(place.value)) for place in places if _is_watched(place)}


def _is_watched(place: Place) -> bool:
    value = place.value
    return not isinstance(value, nn.Parameter) and getattr(value, "grad_fn", None) is None


def obstacle_of_objects(before: _Objects, after: _Objects) -> str:
    """Why an update cannot be captured that changed these objects; empty if it can."""
    for name, parts in after.items():
        earlier = before.get(name, [MISSING])
        # An attribute that the first update makes stays the same afterwards, or is found at the next one.
        if earlier[0] is None or earlier[0] is MISSING or _same(earlier, parts):
            continue
        what = "tensor attribute" if isinstance(parts[0], Tensor) else "Python attribute"
        return f"the {what} {name} of the model changes from update to update, and not in place"
    return ""


def values_elsewhere(model: nn.Module, device: torch.device) -> list[str]:
    """The moving tensors of a rehearsed model that are not on its device, by name.

    `model.to(device)` leaves plain attributes where they are. Kernels take such a number as an argument, and
    a recording would keep it.
    """
    tensors = ((place.name, place.value) for place in moving_places(model))
    return [name for name, value in tensors if isinstance(value, Tensor) and value.device.type != device.type]


def _same(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(map(_is_same, before, after))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return one is other
    return bool(one == other) if isinstance(one, int | float | str) else type(one) is type(other)
