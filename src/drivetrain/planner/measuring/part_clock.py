"""Times the optimiser step of updates."""

import time

from drivetrain.devices.device import Device
from drivetrain.schedules.actions import Action
from drivetrain.schedules.observer import Part

__all__ = ["PartClock"]


class PartClock:
    """Waits for the device at the borders of the optimiser step, and notes its seconds."""

    sees_ends = False

    def __init__(self, device: Device) -> None:
        self._device = device
        self._began_s = 0.0
        self.optimiser_s: list[float] = []

    def begins(self, device: int, action: Action) -> None:
        """Actions of the schedule are not timed."""

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        """Steps of actions are not timed."""

    def part_begins(self, update: int, part: Part) -> None:  # noqa: ARG002
        """Begins the clock of the optimiser step."""
        if part is Part.OPTIMISER:
            self._device.synchronise()
            self._began_s = time.perf_counter()

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:  # noqa: ARG002
        """Notes the seconds of the optimiser step."""
        if part is Part.OPTIMISER:
            self._device.synchronise()
            self.optimiser_s.append(time.perf_counter() - self._began_s)
