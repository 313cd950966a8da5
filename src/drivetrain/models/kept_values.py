"""Keeps the values of modules, to put them back later, and gives tensors memory of their own."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.models.module_values import Place, moving_places, places_of

__all__ = [
    "KeptValues",
    "give_own_memory",
    "keep",
    "keeping_values",
    "memory_of",
    "own_copies",
    "parts_in",
    "tensors_in",
]

_CHANGEABLE = (list, dict, set, deque)
# A collection may contain itself.
_DEEPEST = 8


def parts_in(value: object, *, depth: int = _DEEPEST) -> Iterator[object]:
    """A value and, if it is a collection, the parts in it and in its collections."""
    yield value
    if depth and isinstance(value, (*_CHANGEABLE, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from parts_in(part, depth=depth - 1)


def tensors_in(values: Iterable[object]) -> list[Tensor]:
    """The distinct tensors of values: themselves, or parts of collections."""
    found = {id(part): part for value in values for part in parts_in(value) if isinstance(part, Tensor)}
    return list(found.values())


def memory_of(value: Tensor) -> int:
    """Equal for tensors that share memory."""
    # Only dense tensors have a storage; `_cdata` identifies it, whatever the offset.
    return value.untyped_storage()._cdata if value.layout is torch.strided else id(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptValues:
    """What was bound at each place, the parts of collections, and copies of the contents of tensors."""

    places: Sequence[Place]
    bound: Sequence[Any]
    collections: Sequence[tuple[Any, Any]]
    contents: Sequence[tuple[Tensor, Tensor]]

    @torch.no_grad()
    def put_back(self) -> None:
        """Binds the same objects again, with the contents that they had."""
        for place, value in zip(self.places, self.bound, strict=True):
            if place.value is not value:
                place.bind(value)
        for collection, parts in self.collections:
            collection.clear()
            collection.extend(parts) if isinstance(collection, list | deque) else collection.update(parts)
        for tensor, content in self.contents:
            # Through .data: autograd need not know, as nothing that it saved is used any more.
            tensor.data.copy_(content)


@torch.no_grad()
def keep(places: Sequence[Place], *, with_contents: Iterable[Place]) -> KeptValues:
    """Keeps what is bound at all places; of some also the contents, which a pass may change in place."""
    changing = [place.value for place in with_contents]
    parts = {id(part): part for value in changing for part in parts_in(value)}
    collections = [part for part in parts.values() if isinstance(part, _CHANGEABLE)]
    tensors = [tensor for tensor in tensors_in(changing) if not _overlaps_itself(tensor)]
    return KeptValues(
        places=places,
        bound=[place.value for place in places],
        collections=[(collection, copy(collection)) for collection in collections],
        contents=[(tensor, tensor.detach().clone()) for tensor in tensors],
    )


@contextmanager
def keeping_values(model: nn.Module) -> Iterator[None]:
    """Puts the values of all modules back at the end; of the parameters, those known to move."""
    moving = moving_places(model)
    places = list({place.identity: place for place in [*places_of(model), *moving]}.values())
    steady = (place for place in places if not isinstance(place.value, nn.Parameter))
    kept = keep(places, with_contents=[*steady, *moving])
    try:
        yield
    finally:
        kept.put_back()


@torch.no_grad()
def own_copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of tensors; those that share memory share it in the copies too."""
    uses = Counter(map(memory_of, tensors))
    storages: dict[int, torch.UntypedStorage] = {}
    return [
        tensor.detach().clone() if uses[memory_of(tensor)] == 1 else _in_copy(tensor, storages)
        for tensor in tensors
    ]


def _in_copy(tensor: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    storage = tensor.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = storage.clone()  # type: ignore[no-untyped-call]
    place = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return place.set_(storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())


def give_own_memory(model: nn.Module) -> None:
    """Gives memory of their own to buffers and moving tensors that overlap themselves or are shared."""
    registered = (place for place in places_of(model) if place.is_registered)
    for place in {place.identity: place for place in [*registered, *moving_places(model)]}.values():
        value = place.value
        if isinstance(value, nn.Parameter) or not isinstance(value, Tensor):
            continue
        # Memory of an accelerator always counts as shared.
        if _overlaps_itself(value) or (value.device.type == "cpu" and value.is_shared()):
            place.bind(value.detach().clone(memory_format=torch.contiguous_format))


def _overlaps_itself(value: Tensor) -> bool:
    """Whether elements share memory, as after `expand`: torch copies nothing into such a tensor."""
    if value.layout is not torch.strided:
        return False
    return any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True))
