"""Runs copies of a user's model in training mode, to find the values that its forward pass changes."""

import random
from collections import deque
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from drivetrain.models.kept_values import parts_in
from drivetrain.models.module_values import MISSING, forget_moving, note_moving, places_of
from drivetrain.models.summary import copy_to, float_dtype_of

__all__ = ["Rehearsal", "rehearse"]

# Batch norm in training refuses a single value per channel, which one sample may give. The last pass has
# another number of samples, which tells kept activations from other tensors.
_SAMPLES, _OTHER_SAMPLES = 2, 4
# A CPU takes some seconds for this. Larger models run on the meta device instead.
_MAX_REAL_FLOPS = 100e9
_Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The values that move, with whether the change depends on the samples.

    `passing` are tensors that every pass sets and no later pass reads, such as kept activations.
    """

    moving: dict[str, bool]
    passing: frozenset[str] = frozenset()


def rehearse(model: nn.Module, *, image_shape: _Shape, flops: int = 0) -> Rehearsal | None:
    """Finds what a pass in training changes, and notes it in the model; None if no copy can run.

    `flops` is the cost of one image.
    """
    forget_moving(model)
    is_large = flops * (2 * _SAMPLES + _OTHER_SAMPLES) > _MAX_REAL_FLOPS
    for attempt in (_on_meta, _on_cpu) if is_large else (_on_cpu,):
        try:
            with _generators_kept():
                found = attempt(model, image_shape)
        except Exception:
            # Later checks run the model too, and report why it fails.
            continue
        note_moving(model, found.moving, passing=found.passing)
        return found
    return None


@contextmanager
def _generators_kept() -> Iterator[None]:
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _values(model: nn.Module) -> dict[str, Any]:
    return {place.name: place.value for place in places_of(model)}


class _Copy:
    """A copy of the model that runs passes; its values are compared with those of the model itself."""

    def __init__(self, model: nn.Module, image_shape: _Shape) -> None:
        self._before, self._shape = _values(model), image_shape
        self._model = deepcopy(model).train()
        self.values: dict[str, Any] = {}
        self.moved: set[str] = set()
        self.fleeting: set[str] = set()
        self._looks: dict[str, list[torch.Size]] = {}

    def run(self, seed: int, *, samples: int = _SAMPLES) -> object:
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        output: object = self._model(torch.randn(samples, *self._shape, dtype=float_dtype_of(self._model)))
        self.values = _values(self._model)
        for name in self._before.keys() | self.values.keys():
            if not _same(self._before.get(name, MISSING), self.values.get(name, MISSING)):
                self.moved.add(name)
        looks = {name: _looks(self.values.get(name)) for name in self.moved}
        self.fleeting |= _fleeting(self.values, looks, self._looks)
        self._looks = looks
        return output

    def reset(self, names: Set[str]) -> None:
        """Puts the values of the model itself back."""
        for place in list(places_of(self._model)):
            if place.name in names:
                place.bind(deepcopy(self._before.get(place.name, MISSING)))


def _looks(value: object) -> list[torch.Size]:
    return [part.shape for part in parts_in(value) if isinstance(part, Tensor)]


def _fleeting(
    values: Mapping[str, Any], looks: Mapping[str, list[torch.Size]], earlier: Mapping[str, list[torch.Size]]
) -> set[str]:
    """The names of tensors that look like kept activations: with a graph, or as large as the batch."""
    return {
        name
        for name, shapes in looks.items()
        if any(map(_has_graph, parts_in(values.get(name)))) or shapes != earlier.get(name, shapes)
    }


def _has_graph(value: object) -> bool:
    return isinstance(value, Tensor) and value.grad_fn is not None


def _on_cpu(model: nn.Module, image_shape: _Shape) -> Rehearsal:
    first, second = _Copy(model, image_shape), _Copy(model, image_shape)
    first.run(1)
    second.run(2)
    moved = first.moved | second.moved
    by_samples = {name: not _same(first.values.get(name), second.values.get(name)) for name in moved}
    last = first.run(3, samples=_OTHER_SAMPLES)
    passing = frozenset(first.fleeting)
    if passing:
        # If activations of the first pass can be taken away, the later pass did not read them.
        other = _Copy(model, image_shape)
        other.run(1)
        other.reset(passing)
        passing = passing if _same(last, other.run(3, samples=_OTHER_SAMPLES)) else frozenset()
    moving = {name: by_samples.get(name, True) for name in sorted((moved | first.moved) - passing)}
    return Rehearsal(moving=moving, passing=passing)


def _on_meta(model: nn.Module, image_shape: _Shape) -> Rehearsal:
    """Finds changes without values, by what torch notes of each tensor.

    It notes nothing when `functional.batch_norm` changes a running mean, so every floating-point buffer of a
    user's own counts as moving.
    """
    copy = copy_to(torch.device("meta"), model).train()
    begun, moved, fleeting = _noted(copy), set[str](), set[str]()
    earlier: dict[str, list[torch.Size]] = {}
    for samples in (_SAMPLES, _OTHER_SAMPLES):
        copy(torch.zeros(samples, *image_shape, dtype=float_dtype_of(copy), device="meta"))
        noted, values = _noted(copy), _values(copy)
        moved |= {name for name in begun.keys() | noted.keys() if begun.get(name) != noted.get(name)}
        looks = {name: _looks(values.get(name)) for name in moved}
        fleeting |= _fleeting(values, looks, earlier)
        earlier = looks
    moved |= {name for name, buffer in copy.named_buffers() if buffer.is_floating_point()} & values.keys()
    return Rehearsal(moving=dict.fromkeys(sorted(moved - fleeting), True), passing=frozenset(fleeting))


def _noted(model: nn.Module) -> dict[str, list[object]]:
    return {name: list(map(_note, parts_in(value))) for name, value in _values(model).items()}


def _note(part: object) -> object:
    if isinstance(part, Tensor):
        return id(part), part._version
    return part if isinstance(part, int | float | str | complex | None) else type(part)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; objects of unknown types count as equal."""
    if type(one) is not type(other):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and _same_tensors(one, other)
    if isinstance(one, Tensor):
        return _same_tensors(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, int | float | complex | str | set):
        return bool(one == other or (one != one and other != other))
    return True


def _same_tensors(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.detach(), other.detach()
    return torch.equal(one, other) or (
        one.is_floating_point() and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    )
