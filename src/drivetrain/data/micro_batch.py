"""What a feed hands to the training program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward and backward pass sees, on the device.

    `images` are preprocessed float32, channels last; `slots` are the samples' positions inside the global
    batch; `weights` exist only when the update has padding, and are 0 for it.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor | None
    slots: Tensor


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
