"""What a feed hands to the training program, also where a rank sees neither images nor labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from drivetrain.data.order import SampleOrder, replica_slots

__all__ = ["Feed", "MicroBatch", "Parcel", "ParcelFeed", "SlotFeed", "make_micro_batch"]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward and backward pass sees, on the device.

    `images` are preprocessed float32, channels last; `slots` are the samples' positions inside the global
    batch; `weights` exist only when the update has padding, and are 0 for it. Where images are mixed, `mix`
    is the share of the sample's own image, and the rest is its partner's.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor | None
    slots: Tensor
    partner_labels: Tensor | None = None
    mix: Tensor | None = None


def make_micro_batch(
    images: Tensor, *, labels: Tensor, weights: Tensor | None, slots: Tensor, mix: Tensor | None
) -> MicroBatch:
    """A micro-batch out of images that are ready; with `mix`, the partners' labels follow the own ones."""
    if mix is None:
        return MicroBatch(images, labels, weights, slots)
    own, partner = labels[: len(mix)], labels[len(mix) :]
    return MicroBatch(images, own, weights, slots, partner_labels=partner, mix=mix)


class Feed(Protocol):
    """Brings one replica's micro-batches of any update; the seconds add up where the host waited."""

    data_seconds: float
    transfer_seconds: float

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        """The micro-batches of an update, in the order of accumulation."""
        ...

    def close(self) -> None:
        """Ends loader workers and lets go of the data."""
        ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """All that a feed has for one update, as tensors on the device.

    `there` says which of the parts that an update may have this one has. Micro-batches of parcels with the
    same parts are made by the very same operations on tensors of the same shapes, so that those of one can be
    recorded and repeated with the contents of another.
    """

    tensors: tuple[Tensor, ...]
    there: tuple[bool, ...]

    @classmethod
    def of(cls, parts: Sequence[Tensor | None]) -> Self:
        """The parcel of some parts, of which some are missing."""
        return cls(
            tuple(part for part in parts if part is not None), tuple(part is not None for part in parts)
        )

    @property
    def parts(self) -> list[Tensor | None]:
        """The tensors with the missing ones in their places."""
        tensors = iter(self.tensors)
        return [next(tensors) if is_there else None for is_there in self.there]


@runtime_checkable
class ParcelFeed(Feed, Protocol):
    """A feed that can hand over an update before it is prepared."""

    def collect(self, update: int) -> Parcel:
        """What the update takes; nothing in it is overwritten later."""
        ...

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:
        """The parcel's micro-batches, made on the device alone."""
        ...


class SlotFeed:
    """Micro-batches without contents; dropout needs their places in the global batch."""

    def __init__(
        self, *, order: SampleOrder, micro_batch_size: int, device: torch.device, replica: int, replicas: int
    ) -> None:
        self.data_seconds = 0.0
        self.transfer_seconds = 0.0
        slots = replica_slots(
            global_batch=order.global_batch, replica=replica, replicas=replicas, micro=micro_batch_size
        )
        self._slots = torch.from_numpy(slots.copy()).to(device)
        self._nothing = torch.empty(0, device=device)

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:  # noqa: ARG002
        """As many as any update has; they are the same in all of them."""
        for slots in self._slots:
            yield MicroBatch(self._nothing, self._nothing, None, slots)

    def close(self) -> None:
        """There is nothing to let go of."""
