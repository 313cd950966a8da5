"""What the layers of a model cost on a device, and what it costs to send between devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["CostSource", "LayerTime", "Link", "ModelTimes"]

CostSource = Literal["measured", "described"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """The seconds of one micro-batch in one layer; layers are in the order of the traced model."""

    name: str
    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between two devices, in one direction."""

    bytes_per_s: float
    latency_s: float

    def seconds(self, size_bytes: float) -> float:
        """The time of one message."""
        return self.latency_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimes:
    """The times of all layers at one micro-batch, precision and compile setting.

    `update_s` is what an update costs besides its micro-batches: the optimiser step and fixed overhead. Times
    of layers are scaled such that whole updates agree with a measured one.
    """

    layers: Sequence[LayerTime]
    micro_batch_size: int
    update_s: float
    source: CostSource

    @property
    def forward_s(self) -> float:
        """The forward pass of a micro-batch."""
        return sum(layer.forward_s for layer in self.layers)

    @property
    def backward_s(self) -> float:
        """The backward pass of a micro-batch."""
        return sum(layer.backward_s for layer in self.layers)
