"""Micro-batches and the feeds' interface, with a feed for ranks that need neither images nor labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from drivetrain.data.order import SampleOrder, replica_slots

__all__ = ["Feed", "MicroBatch", "Parcel", "ParcelFeed", "SlotFeed", "make_micro_batch"]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward and backward pass, on the device.

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
    """Makes a micro-batch of prepared images; with `mix`, the partners' labels follow the samples' own."""
    if mix is None:
        return MicroBatch(images, labels, weights, slots)
    own, partner = labels[: len(mix)], labels[len(mix) :]
    return MicroBatch(images, own, weights, slots, partner_labels=partner, mix=mix)


class Feed(Protocol):
    """Feeds one replica with the micro-batches of any update; `*_seconds` sum the host's waiting time."""

    data_seconds: float
    transfer_seconds: float

    def micro_batches(self, update: int) -> Iterator[MicroBatch]:
        """The micro-batches of an update, in the order of accumulation."""
        ...

    def close(self) -> None:
        """Ends loader workers and releases the data."""
        ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """The unprepared data of one update, as tensors on the device.

    `there` says which optional parts this update has. Parcels with the same parts are unpacked by the same
    operations on tensors of the same shapes, so the operations can be recorded once and
    replayed with the contents of another parcel.
    """

    tensors: tuple[Tensor, ...]
    there: tuple[bool, ...]

    @classmethod
    def of(cls, parts: Sequence[Tensor | None]) -> Self:
        """The parcel of some parts; a missing part is None."""
        return cls(
            tuple(part for part in parts if part is not None), tuple(part is not None for part in parts)
        )

    @property
    def parts(self) -> list[Tensor | None]:
        """The tensors, with None in place of the missing parts."""
        tensors = iter(self.tensors)
        return [next(tensors) if is_there else None for is_there in self.there]


@runtime_checkable
class ParcelFeed(Feed, Protocol):
    """A feed that can return an update before it is prepared."""

    def collect(self, update: int) -> Parcel:
        """The data of the update; its tensors are never overwritten later."""
        ...

    def unpack(self, parcel: Parcel) -> Iterator[MicroBatch]:
        """The parcel's micro-batches, made on the device alone."""
        ...


class SlotFeed:
    """Empty micro-batches that only have slots: dropout needs the positions in the global batch."""

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
        """The empty micro-batches, the same for every update."""
        for slots in self._slots:
            yield MicroBatch(self._nothing, self._nothing, None, slots)

    def close(self) -> None:
        """Does nothing: there are no workers and no data."""
