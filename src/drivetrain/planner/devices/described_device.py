"""Devices that need not be on this machine: their memory, speed and links, read from a YAML file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean, shown
from drivetrain.planner.costs import Link
from drivetrain.planner.devices.sizes import parse_bytes
from drivetrain.recipe.yaml_text import read_yaml_file

__all__ = ["FLOAT_TYPES", "DescribedDevice", "described_for", "described_names", "read_device_file"]

FLOAT_TYPES = ("float32", "bfloat16", "float16")

_FOLDER = Path(__file__).parent / "described"
_REQUIRED = ("name", "memory_bytes", "flops", "bytes_per_s")
_OPTIONAL = (
    "kind",
    "efficiency",
    "bandwidth_efficiency",
    "launch_s",
    "host_launch_s",
    "host_bytes_per_s",
    "devices_per_host",
    "hosts",
    "links",
)
_LINKS, _LINK_KEYS = ("device", "host"), ("bandwidth", "latency")
_EXAMPLES = {
    "name": "my GPU",
    "memory_bytes": "80 GB",
    "flops": "{float32: 19.5e12, bfloat16: 312e12, float16: 312e12}",
    "bytes_per_s": "2.0e12",
    "kind": "cuda",
    "efficiency": "0.5",
    "bandwidth_efficiency": "0.9",
    "launch_s": "5e-6",
    "host_launch_s": "60e-6",
    "host_bytes_per_s": "25e9",
    "devices_per_host": "8",
    "hosts": "2",
    "links": "{device: {bandwidth: 300e9, latency: 5e-6}, host: {bandwidth: 25e9, latency: 10e-6}}",
    "bandwidth": "25e9",
    "latency": "10e-6",
}
# What networks reach of a data sheet's peaks: these values fit the six trainings on an H200 that
# benchmarks/results/gpu_training-h200.json holds (docs/planner.md).
_USUAL_EFFICIENCY, _USUAL_BANDWIDTH_EFFICIENCY = 0.5, 0.9
# PCIe 4.0 x16 without its protocol.
_USUAL_HOST_BYTES_PER_S = 25e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDevice:
    """A device as a data sheet describes it.

    `flops` is the peak per second by type, `efficiency` and `bandwidth_efficiency` the shares of
    the peaks that layers reach, `launch_s` the time that each pass through a layer adds, `host_launch_s` the
    time that it takes at least where updates are not captured. `host_bytes_per_s` is the connection to the
    memory of the host. `links` connects devices of a host and hosts with each other; a missing one is not
    known. `hosts` is None if there may be any number.
    """

    name: str
    memory_bytes: int
    flops: Mapping[str, float]
    bytes_per_s: float
    kind: Literal["cuda", "cpu"] = "cuda"
    efficiency: float = _USUAL_EFFICIENCY
    bandwidth_efficiency: float = _USUAL_BANDWIDTH_EFFICIENCY
    launch_s: float = 0.0
    host_launch_s: float = 0.0
    host_bytes_per_s: float = _USUAL_HOST_BYTES_PER_S
    devices_per_host: int = 1
    hosts: int | None = None
    links: Mapping[str, Link] = field(default_factory=dict)

    @property
    def devices(self) -> int | None:
        """The devices of all hosts; None if there may be any number of hosts."""
        return None if self.hosts is None else self.hosts * self.devices_per_host


def described_names() -> tuple[str, ...]:
    """The devices that are described inside the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def described_for(text: str, *, measure: str) -> DescribedDevice:
    """The described device of a plan, which this machine cannot measure."""
    if measure == "on":
        raise BadInputError(
            "--measure on measures this machine, and --device-file describes another one; leave one out."
        )
    return read_device_file(text)


def read_device_file(text: str) -> DescribedDevice:
    """Reads a file, or a device that is described inside the package, by its name."""
    option = f"--device-file {text}"
    is_name = text in described_names()
    path = _FOLDER / f"{text}.yaml" if is_name else Path(text)
    if not is_name and not path.is_file():
        known = ", ".join(described_names())
        raise BadInputError(
            f"{option} is neither a file nor a described device ({known}); --device-file "
            f"{described_names()[0]} works.{did_you_mean(text, described_names())}"
        )
    document = read_yaml_file(path, source=option)
    value = None if document.root is None else document.value(document.root)
    if not isinstance(value, dict):
        raise BadInputError(f"{option} holds no mapping; write lines of key: value, as in name: my GPU.")
    return _Reader(option, value).device()


class _Reader:
    """Reads the keys of one file strictly."""

    def __init__(self, option: str, values: dict[str, Any]) -> None:
        self._option, self._values = option, values

    def device(self) -> DescribedDevice:
        self._check_keys(self._values, known=(*_REQUIRED, *_OPTIONAL), required=_REQUIRED, inside="")
        values = self._values
        return DescribedDevice(
            name=self._text("name"),
            memory_bytes=parse_bytes(values["memory_bytes"], what=f"{self._option}: memory_bytes:"),
            flops=self._flops(),
            bytes_per_s=self._number("bytes_per_s", values["bytes_per_s"]),
            kind=self._kind(),
            efficiency=self._number("efficiency", values.get("efficiency", _USUAL_EFFICIENCY), most=1.0),
            bandwidth_efficiency=self._number(
                "bandwidth_efficiency",
                values.get("bandwidth_efficiency", _USUAL_BANDWIDTH_EFFICIENCY),
                most=1.0,
            ),
            launch_s=self._number("launch_s", values.get("launch_s", 0.0), may_be_0=True),
            host_launch_s=self._number("host_launch_s", values.get("host_launch_s", 0.0), may_be_0=True),
            host_bytes_per_s=self._number(
                "host_bytes_per_s", values.get("host_bytes_per_s", _USUAL_HOST_BYTES_PER_S)
            ),
            devices_per_host=self._count("devices_per_host", values.get("devices_per_host", 1)),
            hosts=None if "hosts" not in values else self._count("hosts", values["hosts"]),
            links=self._links(),
        )

    def _flops(self) -> dict[str, float]:
        given = self._mapping("flops", self._values["flops"])
        self._check_keys(given, known=FLOAT_TYPES, required=("float32",), inside="flops")
        return {name: self._number(f"flops.{name}", value) for name, value in given.items()}

    def _links(self) -> dict[str, Link]:
        given = self._mapping("links", self._values.get("links", {}))
        self._check_keys(given, known=_LINKS, required=(), inside="links")
        return {name: self._link(f"links.{name}", value) for name, value in given.items()}

    def _link(self, key: str, value: object) -> Link:
        given = self._mapping(key, value, example="{bandwidth: 25e9, latency: 10e-6}")
        self._check_keys(given, known=_LINK_KEYS, required=_LINK_KEYS, inside=key)
        return Link(
            bytes_per_s=self._number(f"{key}.bandwidth", given["bandwidth"]),
            latency_s=self._number(f"{key}.latency", given["latency"], may_be_0=True),
        )

    def _kind(self) -> Literal["cuda", "cpu"]:
        kind = self._values.get("kind", "cuda")
        if kind not in ("cuda", "cpu"):
            raise self._wrong("kind", kind, "is not a kind of device")
        return "cpu" if kind == "cpu" else "cuda"

    def _text(self, key: str) -> str:
        value = self._values[key]
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(key, value, "is not a name")
        return value.strip()

    def _number(self, key: str, value: object, *, may_be_0: bool = False, most: float = math.inf) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if isinstance(value, int | float) else math.nan
        is_possible = is_number and math.isfinite(number) and (number > 0 or (may_be_0 and number == 0))
        if not is_possible:
            raise self._wrong(
                key, value, "is not a number of 0 or more" if may_be_0 else "is not a number above 0"
            )
        if number > most:
            raise self._wrong(key, value, f"is more than {most:g}")
        return number

    def _count(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, value, "is not a whole number of 1 or more")
        return value

    def _mapping(self, key: str, value: object, *, example: str | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(key, value, "is not a mapping", example=example)
        return value

    def _check_keys(
        self, given: Mapping[str, Any], *, known: tuple[str, ...], required: tuple[str, ...], inside: str
    ) -> None:
        place = f"{inside}." if inside else ""
        for key in given:
            if key not in known:
                hint = did_you_mean(str(key), known)
                raise BadInputError(
                    f"{self._option}: {place}{key} is not a known key; use {', '.join(known)}.{hint}"
                )
        for key in required:
            if key not in given:
                example = _EXAMPLES.get(key, "19.5e12")
                raise BadInputError(f"{self._option}: {place}{key} is missing; {key}: {example} works.")

    def _wrong(self, key: str, value: object, why: str, *, example: str | None = None) -> BadInputError:
        last = key.rpartition(".")[2]
        works = example or _EXAMPLES.get(last, "19.5e12")
        return BadInputError(f"{self._option}: {key}: {shown(value)} {why}; {last}: {works} works.")
