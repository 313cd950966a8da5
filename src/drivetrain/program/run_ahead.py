"""How far the host may be ahead of an accelerator."""

import time
from collections import deque

import torch

from drivetrain.devices.device import Device

__all__ = ["RunAhead"]

# Long enough for anything that keeps the host busy, short enough to hear a request to stop.
_AHEAD_S = 0.5
_FEWEST_UPDATES, _MOST_UPDATES = 4, 512


class RunAhead:
    """Lets the host go on until it is about half a second of updates ahead, then waits for the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pending: deque[torch.Event] = deque()
        self._allowed = _FEWEST_UPDATES
        self._last_s = time.perf_counter()

    def wait(self) -> None:
        """To be called after every update that the device was given."""
        if self._device.is_cpu:
            return
        given = torch.Event(self._device.torch_device)
        given.record()
        self._pending.append(given)
        while len(self._pending) > self._allowed:
            self._pending.popleft().synchronize()
            self._allow()

    def _allow(self) -> None:
        now_s = time.perf_counter()
        seconds, self._last_s = now_s - self._last_s, now_s
        # One more at most: a pause between updates must not look like updates that take no time.
        most = min(_MOST_UPDATES, self._allowed + 1)
        self._allowed = max(_FEWEST_UPDATES, min(most, int(_AHEAD_S / max(seconds, 1e-6))))
