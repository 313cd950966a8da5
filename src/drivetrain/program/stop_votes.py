"""Lets replicas agree on when to stop: each votes in every update, and all see the sum of the votes.

All must stop at the same update, or the others would wait for an all-reduce forever. A CPU reads the sum at
once. On an accelerator that would synchronise, so sums are read a few updates later, on every replica at the
same update.
"""

from collections import deque

import torch
from torch import Tensor

from drivetrain.devices.device import Device

# By then the copy to the host has usually arrived; stopping is this many updates late.
_UPDATES_LATER = 4


class StopVotes:
    """The sums of the votes of the last updates."""

    def __init__(self, device: Device) -> None:
        self._delay = 0 if device.is_cpu else _UPDATES_LATER
        self._sums: deque[tuple[Tensor, torch.Event]] = deque()
        self.agreed = False

    def count(self, votes: Tensor) -> None:
        """Counts the votes of an update: their sum, one number on the device."""
        if not self._delay:
            self.agreed = self.agreed or bool(votes.item() > 0)
            return
        # Into pageable memory, the copy would make the host wait despite non_blocking=True.
        copied = torch.empty((), dtype=votes.dtype, pin_memory=True)
        copied.copy_(votes, non_blocking=True)
        arrived = torch.Event(votes.device)
        arrived.record()
        self._sums.append((copied, arrived))
        if len(self._sums) > self._delay:
            earlier, event = self._sums.popleft()
            event.synchronize()
            self.agreed = self.agreed or bool(earlier.item() > 0)
