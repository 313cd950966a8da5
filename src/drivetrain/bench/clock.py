"""The times of single steps, taken without making an accelerator wait, and how far a measurement has come."""

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter

import torch

from drivetrain.console.reporter import Reporter
from drivetrain.devices.device import Device

__all__ = ["StepClock", "counting"]


class StepClock:
    """Notes a moment after each step, where the device does its work; `stop` waits for it and reads them."""

    def __init__(self, device: Device) -> None:
        self._device = device
        device.synchronise()
        self._moments_s: list[float] = []
        self._events: list[torch.Event] = []
        self.note()
        self._started_s = perf_counter()
        self.total_s = 0.0

    def note(self) -> None:
        """The end of a step, and the beginning of the next."""
        if self._device.is_cpu:
            self._moments_s.append(perf_counter())
            return
        event = torch.Event(self._device.torch_device, enable_timing=True)
        event.record()
        self._events.append(event)

    def stop(self) -> list[float]:
        """The seconds of each step; `total_s` is how long all of them took as the host sees it."""
        self._device.synchronise()
        self.total_s = perf_counter() - self._started_s
        if self._device.is_cpu:
            moments = self._moments_s
        else:
            first = self._events[0]
            moments = [0.0, *(first.elapsed_time(event) / 1e3 for event in self._events[1:])]
        return [later - earlier for earlier, later in pairwise(moments)]


# How far a measurement has come, one call a step.


def counting(reporter: Reporter, *, done: int, what: str) -> Callable[[], None]:
    """Shows `what` is under way, one step further at each call."""
    calls = done

    def show() -> None:
        nonlocal calls
        calls += 1
        if reporter.progress_due():
            reporter.progress(calls, what)

    return show
