"""The links between ranks: measured on this machine, from a device file, or a documented default."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from drivetrain.core.cache_folder import cache_folder, keep_answer, read_answer
from drivetrain.devices.device import choose_device
from drivetrain.devices.processor import read_processor
from drivetrain.planner.costs import Link
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.devices.target import Target

__all__ = [
    "DEFAULT_LINK",
    "LinkSource",
    "Links",
    "all_reduce_seconds",
    "find_links",
    "keep_measured_link",
    "machine_name",
]

LinkSource = Literal["measured", "described", "default"]

# 10 Gbit/s Ethernet, when nothing is known: 1.25e9 bytes per second, 50 microseconds.
DEFAULT_LINK = Link(bytes_per_s=1.25e9, latency_s=50e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links between devices of a host and between hosts; ranks fill one host after the other."""

    device: Link
    host: Link
    devices_per_host: int
    source: LinkSource

    def slowest(self, ranks: int) -> Link:
        """The slowest link of a ring over this many ranks."""
        return self.device if ranks <= self.devices_per_host else self.host


def find_links(target: Target, *, ranks: int) -> Links:
    """The links between the ranks of a run; ranks on this machine are all on one host."""
    if target.described is not None:
        return _described(target.described)
    measured = _measured(target)
    if measured is not None:
        return Links(device=measured, host=measured, devices_per_host=ranks, source="measured")
    return Links(device=DEFAULT_LINK, host=DEFAULT_LINK, devices_per_host=ranks, source="default")


def _described(device: DescribedDevice) -> Links:
    far = device.links.get("host", DEFAULT_LINK)
    near = device.links.get("device", far)
    source: LinkSource = "described" if device.links else "default"
    return Links(device=near, host=far, devices_per_host=device.devices_per_host, source=source)


def all_reduce_seconds(size_bytes: float, *, ranks: int, link: Link, buckets: int = 1) -> float:
    """Seconds of a ring all-reduce: every rank sends 2 (R - 1) / R of the bytes, in 2 (R - 1) steps."""
    if ranks < 2:
        return 0.0
    steps = 2 * (ranks - 1)
    return steps / ranks * size_bytes / link.bytes_per_s + buckets * steps * link.latency_s


def keep_measured_link(link: Link, *, kind: str, machine: str) -> None:
    """Keeps a measured link between two ranks of this machine in the user's cache folder."""
    answer = {"bytes_per_s": link.bytes_per_s, "latency_s": link.latency_s}
    keep_answer(_path(kind), "link", marks=_marks(kind, machine), answer=answer)


def _measured(target: Target) -> Link | None:
    if target.here is None:
        return None
    kind = target.here.torch_device.type
    answer = read_answer(_path(kind), "link", marks=_marks(kind, machine_name(kind)))
    try:
        return Link(**answer) if answer else None
    except TypeError:
        return None


def machine_name(kind: str) -> str:
    """What a measured link belongs to: the processor, or the accelerator of this machine."""
    return read_processor().name if kind == "cpu" else choose_device(kind).description


def _marks(kind: str, machine: str) -> Mapping[str, Any]:
    return {"kind": kind, "machine": machine}


def _path(kind: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "planner" / f"link-{kind}.json"
