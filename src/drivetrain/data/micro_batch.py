"""What a feed hands to the training program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


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
