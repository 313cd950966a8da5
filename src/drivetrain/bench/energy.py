"""The energy that a device has used since it was switched on, where it counts it."""

from collections.abc import Callable
from pathlib import Path

from drivetrain.devices.device import Device
from drivetrain.monitor.nvml import open_nvml

__all__ = ["EnergyCounter", "energy_counter", "joules_between"]

_POWERCAP = Path("/sys/class/powercap")
_MICRO = 1e-6

EnergyCounter = Callable[[], float | None]


def energy_counter(device: Device, *, powercap: Path = _POWERCAP) -> EnergyCounter:
    """A function that reads the joules of a device: NVML for an accelerator, RAPL for the processor.

    It returns None where nothing is counted. RAPL counts whole processors, with all that runs on them.
    """
    if device.is_cpu:
        return lambda: _processor_joules(powercap)
    nvml, _ = open_nvml()
    hardware = device.hardware
    if nvml is None or hardware is None:
        return lambda: None
    return lambda: nvml.joules(hardware)


def joules_between(before: float | None, after: float | None) -> float | None:
    """The difference of two readings; None if one is missing or the counter began again at 0."""
    if before is None or after is None or after <= before:
        return None
    return after - before


def _processor_joules(folder: Path) -> float | None:
    """The sum over all processors; a domain that is not a processor would count what they count again."""
    try:
        counters = [
            path / "energy_uj"
            for path in sorted(folder.glob("intel-rapl:*"))
            if (path / "name").read_text().startswith("package")
        ]
        return sum(int(counter.read_text()) for counter in counters) * _MICRO if counters else None
    except (OSError, ValueError):
        return None
