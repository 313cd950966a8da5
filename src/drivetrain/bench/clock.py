"""Times single steps without synchronizing with the device, and shows the progress of a measurement."""

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter

import torch

from drivetrain.console.reporter import Reporter
from drivetrain.devices.device import Device

__all__ = ["StepClock", "counting"]


class StepClock:
    """Records a timestamp after each step on the device itself; `stop` synchronizes and reads them.

    On an accelerator the timestamps are events in its stream, so the host can keep queueing work.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        device.synchronise()
        self._moments_s: list[float] = []
        self._events: list[torch.Event] = []
        self.note()
        self._started_s = perf_counter()
        self.total_s = 0.0

    def note(self) -> None:
        """Marks the end of a step, which is the beginning of the next one."""
        if self._device.is_cpu:
            self._moments_s.append(perf_counter())
            return
        event = torch.Event(self._device.torch_device, enable_timing=True)
        event.record()
        self._events.append(event)

    def stop(self) -> list[float]:
        """The seconds of each step; `total_s` becomes the time of all steps on the host's clock."""
        self._device.synchronise()
        self.total_s = perf_counter() - self._started_s
        if self._device.is_cpu:
            moments = self._moments_s
        else:
            first = self._events[0]
            moments = [0.0, *(first.elapsed_time(event) / 1e3 for event in self._events[1:])]
        return [later - earlier for earlier, later in pairwise(moments)]


def counting(reporter: Reporter, *, done: int, what: str) -> Callable[[], None]:
    """A function that advances the progress bar by one step per call, labelled `what`."""
    calls = done

    def show() -> None:
        nonlocal calls
        calls += 1
        if reporter.progress_due():
            reporter.progress(calls, what)

    return show
