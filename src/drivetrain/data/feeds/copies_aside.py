"""Copies from the host to an accelerator, beside what it computes."""

import torch
from torch import Tensor

from drivetrain.data.feeds.host_batch import HostBatch

__all__ = ["CopiesAside"]


class CopiesAside:
    """Brings batches to a device on a stream of their own, so that no update waits behind a copy.

    The host goes on at once. As it is some updates ahead of the device, the copies are too: while one update
    computes, what the next ones need is under way or there.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device)

    def bring(self, batch: HostBatch) -> HostBatch:
        """The batch on the device; what the device is given from now on finds it there."""
        if self._stream is None:
            return batch.to(self._device)
        with self._stream:
            brought = batch.to(self._device)
        computing = torch.accelerator.current_stream(self._device)
        computing.wait_stream(self._stream)
        for part in brought.parts:
            if part is not None:
                _keep_until_used(part, computing)
        return brought


def _keep_until_used(part: Tensor, computing: torch.Stream) -> None:
    """Its memory belongs to the copying stream, which would take it again before it is read."""
    part.record_stream(computing)
