"""What the system reports about the processor; `cpu_half` tests what it really supports."""

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Processor", "boot_id", "read_processor"]

_CPUINFO = Path("/proc/cpuinfo")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMES = ("model name", "Hardware", "cpu model")
_FEATURES = ("flags", "Features")


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The name of a processor, its microcode if known, and the features it advertises."""

    name: str
    microcode: str
    features: frozenset[str]


@cache
def read_processor(cpuinfo: Path = _CPUINFO) -> Processor:
    """The processor of this machine; without features if the system does not list them."""
    lines = _lines_of_first_core(cpuinfo)
    name = next((lines[key] for key in _NAMES if lines.get(key)), "")
    features = next((lines[key] for key in _FEATURES if key in lines), "")
    return Processor(
        name=name or platform.processor() or platform.machine(),
        microcode=lines.get("microcode", ""),
        features=frozenset(features.split()),
    )


def boot_id(path: Path = _BOOT) -> str:
    """An id that changes with every boot of the system; empty if there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _lines_of_first_core(cpuinfo: Path) -> dict[str, str]:
    try:
        first = cpuinfo.read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
