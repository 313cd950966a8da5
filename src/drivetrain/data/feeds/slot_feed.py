"""The feed of a rank whose stages see neither images nor labels: only which samples are under way."""

from collections.abc import Iterator

import torch

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.order import SampleOrder, replica_slots

__all__ = ["SlotFeed"]


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
