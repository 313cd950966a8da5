"""What a sampler reads of a host; a value that a device or the system does not tell is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

__all__ = ["Accelerator", "DeviceProcess", "HostProcess", "HostReading", "HostSampler", "Processor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process that uses an accelerator, as its driver knows it."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator; `firmware` is the version of its VBIOS."""

    index: int
    kind: str | None = None
    id: str | None = None
    serial: str | None = None
    driver: str | None = None
    firmware: str | None = None
    utilisation_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clock_mhz: float | None = None
    largest_clock_mhz: float | None = None
    chip_celsius: float | None = None
    memory_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    processes: tuple[DeviceProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The CPUs of a host, all together; the load is the mean of the last minute."""

    kind: str | None = None
    cores: int | None = None
    threads: int | None = None
    utilisation_percent: float | None = None
    load: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clock_mhz: float | None = None
    chip_celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcess:
    """A process; `began` in seconds since 1970; `run` is the run directory that it has open or names."""

    pid: int
    began: float
    parent: int | None = None
    user: str | None = None
    command: str | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    run: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """One look at a host; `time` in seconds since 1970; `notes` say what could not be read."""

    time: float
    host: str
    accelerators: Sequence[Accelerator] = ()
    processor: Processor = field(default_factory=Processor)
    processes: Mapping[int, HostProcess] = field(default_factory=dict)
    notes: Sequence[str] = ()


class HostSampler(Protocol):
    """Reads a host."""

    def sample(self) -> HostReading:
        """One look; processor times count from the look before."""
        ...
