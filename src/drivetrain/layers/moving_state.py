"""Values of modules that passes change: rewound where a stage recomputes, and at home between updates."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from drivetrain.core.errors import RunFailedError
from drivetrain.models.kept_values import KeptValues, keep, memory_of, own_copies, tensors_in
from drivetrain.models.module_values import moving_places, passing_places, places_of, was_rehearsed

__all__ = ["Homes", "StageState"]


class StageState:
    """The values of a stage's modules that its passes change, while several micro-batches are in flight.

    `model` is the whole model, in which a rehearsal has noted what moves. Without a rehearsal, every tensor
    that is not a parameter counts as moving.
    """

    def __init__(self, stage: nn.Module, *, model: nn.Module) -> None:
        own = {id(holder) for module in stage.modules() for holder in _holders(module)}
        noted = [place for place in moving_places(model) if id(place.holder) in own]
        passing = {place.identity for place in passing_places(model)}
        found = {place.identity: place for place in places_of(stage) if place.identity not in passing}
        found |= {place.identity: place for place in noted}
        self._bound = [place for place in found.values() if not isinstance(place.value, nn.Parameter)]
        self._moving = noted if was_rehearsed(model) else self._bound
        moving = {place.identity for place in self._moving}
        still = [place for key, place in found.items() if key not in moving]
        self._still = [place for place in still if isinstance(place.value, Tensor)]
        self._noted = noted
        self._begun: dict[int, KeptValues] = {}

    @property
    def needs_recomputation(self) -> bool:
        """Whether a pass changes what earlier passes in flight need, and cannot work on a copy instead.

        A parameter cannot be replaced by a copy, nor can a tensor that is held elsewhere too.
        """
        values = [place.value for place in self._noted if isinstance(place.value, Tensor)]
        inside = [place.value for place in self._bound if not isinstance(place.value, Tensor)]
        elsewhere = [place.value for place in self._still]
        held = {memory_of(tensor) for tensor in tensors_in([*inside, *elsewhere])}
        return any(isinstance(value, nn.Parameter) or memory_of(value) in held for value in values)

    def begin(self, micro_batch: int) -> None:
        """Keeps the values with which the first pass of a micro-batch begins."""
        self._begun[micro_batch] = keep(self._bound, with_contents=self._moving)

    @contextmanager
    def rewound(self, micro_batch: int) -> Iterator[None]:
        """Inside the block the values are those with which the first pass began; then those of now again.

        The block includes the backward pass, which may read the values too.
        """
        watched = [(place.name, place.value, place.value._version) for place in self._still]
        with self.kept():
            self._begun.pop(micro_batch).put_back()
            yield
        for name, value, version in watched:
            if value._version != version:
                raise RunFailedError(
                    f"--model has changed {name} in place, which it did not do in its first pass, so "
                    "--recomputation cannot repeat its passes; train without --recomputation."
                )

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Puts the values back at the end."""
        now = keep(self._bound, with_contents=self._moving)
        try:
            yield
        finally:
            now.put_back()

    def branch(self) -> None:
        """Lets the next pass change copies, because autograd holds the tensors for passes in flight."""
        places = [place for place in self._noted if isinstance(place.value, Tensor)]
        copies = own_copies([place.value for place in places])
        for place, copied in zip(places, copies, strict=True):
            place.bind(copied)


def _holders(module: nn.Module) -> tuple[object, ...]:
    return module._parameters, module._buffers, vars(module)


class Homes:
    """The tensors that hold moving values between updates; they stay the same for the whole training.

    Captured updates, views of the state and restored state rely on this. A module may bind another tensor
    in a pass; `settle` copies its contents home and binds the home again.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places = [place for place in moving_places(model) if not isinstance(place.value, nn.Parameter)]
        self._homes = [place.value for place in self._places]

    @torch.no_grad()
    def settle(self) -> None:
        """Call it after the passes of an update, when no backward pass is due."""
        values = [place.value for place in self._places]
        if all(value is home for value, home in zip(values, self._homes, strict=True)):
            return
        uses = Counter(memory_of(value) for value in values if isinstance(value, Tensor))
        homes = {memory_of(home) for home in self._homes if isinstance(home, Tensor)}
        moves: list[tuple[int, Tensor]] = []
        for index, (value, home) in enumerate(zip(values, self._homes, strict=True)):
            if value is home:
                continue
            if _fits(value, home) and uses[memory_of(value)] == 1:
                # What lies in a home would be overwritten before it is copied.
                moves.append((index, value.clone() if memory_of(value) in homes else value))
            else:
                self._homes[index] = value
        for index, value in moves:
            self._homes[index].copy_(value)
            self._places[index].bind(self._homes[index])

    def go_home(self) -> None:
        """Binds the homes again, without the contents of what is bound now."""
        for place, home in zip(self._places, self._homes, strict=True):
            place.bind(home)


def _fits(value: object, home: object) -> bool:
    if not isinstance(value, Tensor) or not isinstance(home, Tensor):
        return False
    looks = [(each.shape, each.dtype, each.device, each.layout) for each in (value, home)]
    return looks[0] == looks[1]
