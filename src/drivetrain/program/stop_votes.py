"""Replicas agree on when to stop: each says in every update whether it was asked to, and all see the sum.

A CPU reads the sum at once. An accelerator is not waited for: its sums are looked at a few updates later, at
the same update on every replica.
"""

from collections import deque

import torch
from torch import Tensor

from drivetrain.devices.device import Device

_UPDATES_LATER = 4


class StopVotes:
    """The sums of the votes of the last updates."""

    def __init__(self, device: Device) -> None:
        self._delay = 0 if device.is_cpu else _UPDATES_LATER
        self._sums: deque[tuple[Tensor, torch.Event]] = deque()
        self.agreed = False

    def count(self, votes: Tensor) -> None:
        """Takes the sum of an update's votes, one number on the device."""
        if not self._delay:
            self.agreed = self.agreed or bool(votes.item() > 0)
            return
        copied = torch.empty((), dtype=votes.dtype, pin_memory=True)
        copied.copy_(votes, non_blocking=True)
        arrived = torch.Event(votes.device)
        arrived.record()
        self._sums.append((copied, arrived))
        if len(self._sums) > self._delay:
            earlier, event = self._sums.popleft()
            event.synchronize()
            self.agreed = self.agreed or bool(earlier.item() > 0)
