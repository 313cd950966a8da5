"""The values that modules keep in attributes: parameters, buffers, other tensors, numbers and collections.

A value *moves* if a forward pass in training changes it. `models/rehearsal.py` finds such values and notes
their names in the model, where a copy of the model has them too.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "MISSING",
    "Place",
    "forget_moving",
    "moving_attributes",
    "moving_places",
    "note_moving",
    "passing_places",
    "places_of",
    "take_over_attributes",
    "unstored_places",
    "was_rehearsed",
]


class MISSING:
    """The value of a place whose attribute does not exist; a class, so that a copy of it is the same."""


_Number = bool | int | float
_VALUES = (bool, int, float, complex, str, list, tuple, dict, set, deque)
_LARGEST_INT = 2**63
_MOVING, _PASSING = "_moving_values", "_passing_values"
_MACHINERY = frozenset(vars(nn.Module())) | {_MOVING, _PASSING}
_OF_TORCH, _OF_DRIVETRAIN = ("torch.nn.", "torch.fx."), "drivetrain."


@dataclass(frozen=True, slots=True)
class Place:
    """An attribute of a module; `holder` is the dictionary of the module that holds it."""

    name: str
    holder: dict[str, Any]
    key: str

    @property
    def value(self) -> Any:
        """The value now; MISSING if there is none."""
        return self.holder.get(self.key, MISSING)

    @property
    def identity(self) -> tuple[int, str]:
        """Equal for two names of the same attribute."""
        return id(self.holder), self.key

    @property
    def is_registered(self) -> bool:
        """Whether this is a parameter or buffer, not a plain attribute."""
        return "_parameters" not in self.holder

    def bind(self, value: Any) -> None:
        """Puts a value here without running code of the module; MISSING removes the attribute."""
        if value is MISSING:
            self.holder.pop(self.key, None)
        else:
            self.holder[self.key] = value


def places_of(model: nn.Module) -> Iterator[Place]:
    """The values of all modules, without those of this package; of torch's own modules only the tensors."""
    for prefix, module in model.named_modules():
        if _is_ours(module):
            continue
        is_user = not type(module).__module__.startswith(_OF_TORCH)
        for holder in (module._parameters, module._buffers, vars(module)):
            for key, value in holder.items():
                is_value = isinstance(value, Tensor) or (is_user and _is_value(value))
                if is_value and key not in _MACHINERY:
                    yield Place(f"{prefix}.{key}" if prefix else key, holder, key)


def _is_ours(module: nn.Module) -> bool:
    """Whether a module is one of this package, whose layers have an owner for what they change."""
    return type(module).__module__.startswith(_OF_DRIVETRAIN)


def _is_value(value: object) -> bool:
    return value is None or isinstance(value, _VALUES)


def note_moving(model: nn.Module, moving: Collection[str], *, passing: Collection[str] = ()) -> None:
    """Notes which values of a model move; `passing` ones are set by every pass, but read by no later one."""
    vars(model)[_MOVING] = frozenset(moving)
    vars(model)[_PASSING] = frozenset(passing)


def forget_moving(model: nn.Module) -> None:
    """Removes what an earlier rehearsal has noted."""
    vars(model).pop(_MOVING, None)
    vars(model).pop(_PASSING, None)


def was_rehearsed(model: nn.Module) -> bool:
    """Whether it is known which values of a model move."""
    return _MOVING in vars(model)


def moving_places(model: nn.Module) -> list[Place]:
    """The places of the values that move; without those in layers that were replaced by ours."""
    return _places(model, vars(model).get(_MOVING, ()))


def passing_places(model: nn.Module) -> list[Place]:
    """The places of values that every pass sets and no later one reads, such as kept activations."""
    return _places(model, vars(model).get(_PASSING, ()))


def _places(model: nn.Module, names: Iterable[str]) -> list[Place]:
    modules = dict(model.named_modules(remove_duplicate=False))
    found = []
    for name in sorted(names):
        path, _, key = name.rpartition(".")
        module = modules.get(path)
        if module is not None and not _is_ours(module):
            found.append(Place(name, _holder(module, key), key))
    return found


def _holder(module: nn.Module, key: str) -> dict[str, Any]:
    registered = (module._parameters, module._buffers)
    return next((holder for holder in registered if key in holder), vars(module))


def moving_attributes(model: nn.Module) -> dict[str, Tensor]:
    """The moving tensors and numbers that are neither parameters nor buffers; numbers as 0-d tensors."""
    plain = (place for place in moving_places(model) if not place.is_registered)
    values = {place.name: _as_tensor(place.value) for place in plain}
    return {name: value for name, value in values.items() if value is not None}


def unstored_places(model: nn.Module) -> list[Place]:
    """Moving attributes that are neither tensors nor numbers, so that no checkpoint stores them."""
    plain = (place for place in moving_places(model) if not place.is_registered)
    return [place for place in plain if not isinstance(place.value, _Number | Tensor | None | type)]


def _as_tensor(value: object) -> Tensor | None:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, bool):
        return torch.tensor(value)
    if isinstance(value, int) and -_LARGEST_INT <= value < _LARGEST_INT:
        return torch.tensor(value, dtype=torch.int64)
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else None


@torch.no_grad()
def take_over_attributes(model: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Puts stored values into plain attributes of the same name; other names have no effect."""
    for place in _places(model, stored):
        if place.is_registered:
            continue
        value, now = stored[place.name], place.value
        if isinstance(now, _Number):
            place.bind(value.item())
        elif isinstance(now, Tensor) and _fits(now, value):
            now.copy_(value)
        elif now is None or isinstance(now, Tensor):
            place.bind(value.to(_device(model, now), copy=True))


def _fits(now: Tensor, value: Tensor) -> bool:
    return (now.shape, now.dtype) == (value.shape, value.dtype) and not now.requires_grad


def _device(model: nn.Module, now: Tensor | None) -> torch.device:
    if now is not None:
        return now.device
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
