"""The forward and backward passes of one update, over a model in one piece."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from drivetrain.core.randomness import stream_key
from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.devices.device import Device
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.places import DrawPlaces
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.passes.model_step import LossParts, Step
from drivetrain.passes.update_batches import NumberedBatch, UpdateBatches
from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.observer import Observer, observed

__all__ = ["Passes", "PlainPasses", "added_up", "written_at_once"]


# A backward pass adds each gradient to the existing one: one operation per parameter, and the flat gradient
# must be zeroed first. If `grad` is None, autograd stores its own tensors instead, and a single operation
# then copies all of them into the flat gradient, to which later micro-batches add.


@contextmanager
def written_at_once(parameters: FlatParameters) -> Iterator[None]:
    """Makes the first backward pass of an update overwrite the flat gradient instead of adding to it."""
    for owner in parameters.owners:
        owner.grad = None
    try:
        yield
        _write(parameters)
    finally:
        for owner, place in zip(parameters.owners, parameters.gradient_places, strict=True):
            owner.grad = place


@torch.no_grad()
def _write(parameters: FlatParameters) -> None:
    places: list[Tensor] = []
    found: list[Tensor] = []
    for owner, place in zip(parameters.owners, parameters.gradient_places, strict=True):
        if owner.grad is None:
            place.zero_()
        else:
            places.append(place)
            found.append(owner.grad.to_dense() if owner.grad.is_sparse else owner.grad)
    if found:
        torch._foreach_copy_(places, found)


class Passes(Protocol):
    """Adds up the gradient of an update's micro-batches."""

    @property
    def adds_to_zeros(self) -> bool:
        """Whether the flat gradient has to be zeros when an update begins."""
        ...

    @property
    def wait_seconds(self) -> float | None:
        """Seconds spent waiting for other stages so far; None if not known."""
        ...

    def run(self, update: int) -> tuple[Tensor, Tensor]:
        """All micro-batches of this replica; their part of the update's mean loss and score."""
        ...

    def watch(self, observer: Observer | None) -> None:
        """Sets the observer of updates; None removes it."""
        ...


@dataclass(slots=True, kw_only=True)
class PlainPasses:
    """One micro-batch after the other, each through the whole model.

    With `writes_first`, the gradients of the first one overwrite the flat gradient instead of being added.
    """

    step: Step
    context: UpdateContext
    draws: DrawPlaces
    batch_norms: BatchNormOwner
    batches: UpdateBatches
    gradient_sum: GradientSum
    parameters: FlatParameters
    device: Device
    seed: int
    writes_first: bool = False
    _observer: Observer | None = None

    @property
    def adds_to_zeros(self) -> bool:
        return not self.writes_first

    @property
    def wait_seconds(self) -> float:
        return 0.0

    def watch(self, observer: Observer | None) -> None:
        self._observer = observer

    def run(self, update: int) -> tuple[Tensor, Tensor]:
        return self.run_batches(self._batches(update), share=self.batches.share(update), seeded_for=update)

    def run_batches(
        self, batches: Iterable[NumberedBatch], *, share: float, seeded_for: int | None
    ) -> tuple[Tensor, Tensor]:
        """As `run`, of given micro-batches; torch's own generators are set for an update, or left alone."""
        last_index = self.batches.accumulation - 1
        parts: list[tuple[Tensor, Tensor]] = []
        for numbered in batches:
            key = None if seeded_for is None else self.generator_key(seeded_for, numbered.number)
            if key is not None:
                self.device.seed_generators(key)
            if numbered.number // self.batches.replicas == last_index:
                self.gradient_sum.begin_last_pass()
            is_written = self.writes_first and not parts
            with written_at_once(self.parameters) if is_written else nullcontext():
                parts.append(self._micro_batch(numbered, share=share, generator_key=key))
        return added_up(parts, device=self.device)

    def seed_generators(self, update: int, number: int) -> None:
        """Sets torch's own generators as a micro-batch finds them."""
        self.device.seed_generators(self.generator_key(update, number))

    def generator_key(self, update: int, number: int) -> int:
        """The key of a micro-batch for draws from generators."""
        return stream_key(self.seed, "model", update, number)

    def _batches(self, update: int) -> Iterator[NumberedBatch]:
        """The micro-batches of an update; an observer sees how long each was waited for."""
        coming = self.batches.of(update)
        if self._observer is not None:
            for index in range(len(self.batches.numbers(update))):
                self._observer.begins(0, Action(Kind.FORWARD, 0, index))
                with self._seen(Kind.FORWARD, index, "data"):
                    numbered = next(coming)
                yield numbered
        # Without an observer all, else what a feed does after its last micro-batch.
        yield from coming

    def _micro_batch(
        self, numbered: NumberedBatch, *, share: float, generator_key: int | None
    ) -> tuple[Tensor, Tensor]:
        batch, index = numbered.batch, numbered.number // self.batches.replicas
        with self._seen(Kind.FORWARD, index, "forward"):
            parts = self.forward(batch, share=share, generator_key=generator_key)
        if self._observer is not None:
            self._observer.begins(0, Action(Kind.BACKWARD, 0, index))
        with self._seen(Kind.BACKWARD, index, "backward"):
            parts.scaled.backward()  # type: ignore[no-untyped-call]
        return parts.loss, parts.score

    def forward(self, batch: MicroBatch, *, share: float, generator_key: int | None) -> LossParts:
        """The forward pass of a micro-batch; its draws from generators belong to the key."""
        self.context.begin_forward(batch.slots, generator_key=generator_key)
        with self.draws.running(recomputing=self.batch_norms.recomputing):
            return self.step(batch, share=share)

    def _seen(self, kind: Kind, index: int, what: str) -> AbstractContextManager[object]:
        return observed(self._observer, 0, what, Action(kind, 0, index))


def added_up(parts: Sequence[tuple[Tensor, Tensor]], *, device: Device) -> tuple[Tensor, Tensor]:
    """The sums of losses and scores; 0 where nothing ran."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = torch.zeros((), device=device.torch_device)
        return nothing, nothing
    return torch.stack([part[0] for part in parts]).sum(), torch.stack([part[1] for part in parts]).sum()
