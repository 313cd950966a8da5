"""The result of a benchmark and the figures in it, as they are written to a file. Imports no torch."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "FIGURES",
    "BenchResult",
    "Entry",
    "Figure",
    "joules_per_image",
    "median_of",
    "number_text",
    "one_median",
    "percentiles",
    "plain_number",
]

FORMAT = 1
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """How a number is shown: under `title`, multiplied by `scale`; for speeds, higher is better."""

    title: str
    scale: float = 1.0
    is_speed: bool = False

    def text(self, value: float) -> str:
        """The value in the unit of the title."""
        return number_text(value * self.scale)


def number_text(value: float) -> str:
    """Four significant digits; all integer digits for numbers of 1000 and more."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def plain_number(value: float) -> int | float:
    """The number as a person would type it: 1000000 rather than 1000000.0 or 1e+06."""
    return int(value) if value.is_integer() else value


FIGURES: Mapping[str, Figure] = {
    "images_per_second": Figure(title="images/s", is_speed=True),
    "seconds_per_update": Figure(title="s/update"),
    "seconds_per_batch": Figure(title="s/batch"),
    "p50_seconds": Figure(title="p50 ms", scale=1e3),
    "p90_seconds": Figure(title="p90 ms", scale=1e3),
    "p95_seconds": Figure(title="p95 ms", scale=1e3),
    "p99_seconds": Figure(title="p99 ms", scale=1e3),
    "read_per_second": Figure(title="read, decode /s", is_speed=True),
    "preprocess_per_second": Figure(title="preprocess /s", is_speed=True),
    "transfer_per_second": Figure(title="transfer /s", is_speed=True),
    "peak_memory_bytes": Figure(title="peak MiB", scale=2.0**-20),
    "tflops": Figure(title="TFLOP/s", is_speed=True),
    "fraction_of_peak": Figure(title="of peak", is_speed=True),
    "compile_seconds": Figure(title="compile s"),
    "joules_per_image": Figure(title="J/image"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One measured case: its medians, keyed by the names in `FIGURES`, and every repeat.

    `states` describes how it ran, for example {"compiled": "yes"}.
    """

    name: str
    figures: Mapping[str, float]
    repeats: Sequence[Mapping[str, Any]] = ()
    states: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """The result of a benchmark, with everything that is needed to repeat it.

    Only results with the same `workload` can be compared; `settings` may differ. `peak` is the peak speed of
    the device, measured in the same run; `model` is the work of a forward pass.
    """

    benchmark: str
    command: str
    machine: Mapping[str, Any]
    workload: Mapping[str, Any]
    settings: Mapping[str, Any]
    recipe: Mapping[str, Any]
    entries: Sequence[Entry]
    peak: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        entries = [
            {
                "name": entry.name,
                **entry.figures,
                **entry.states,
                "repeats": [dict(repeat) for repeat in entry.repeats],
            }
            for entry in self.entries
        ]
        parts = {
            "format": FORMAT,
            "benchmark": self.benchmark,
            "command": self.command,
            "machine": dict(self.machine),
            "workload": dict(self.workload),
            "settings": dict(self.settings),
            "peak": dict(self.peak),
            "model": dict(self.model),
            "entries": entries,
            "notes": list(self.notes),
            "recipe": dict(self.recipe),
        }
        return {key: value for key, value in parts.items() if value not in ({}, [])}


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The 50th, 90th, 95th and 99th percentile of the step times, linearly interpolated."""
    ordered = sorted(seconds)
    found = {}
    for percent in PERCENTILES:
        place = (len(ordered) - 1) * percent / 100
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        value = ordered[below] + (ordered[above] - ordered[below]) * (place - below)
        found[f"p{percent}_seconds"] = value
    return found


def median_of(repeats: Sequence[Mapping[str, Any]], name: str) -> float:
    """The median of a figure over the repeats."""
    return float(statistics.median(repeat[name] for repeat in repeats))


def joules_per_image(repeats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The median joules of an image over the repeats that have them; empty if the device counts none."""
    found = [repeat["joules"] / repeat["images"] for repeat in repeats if repeat.get("joules")]
    return {"joules_per_image": float(statistics.median(found))} if found else {}


def one_median(repeats: Sequence[Mapping[str, Any]], name: str, *, images: int) -> dict[str, float]:
    """The median seconds of a step with `images` images, and the images per second that follow from it."""
    median_s = median_of(repeats, name)
    return {"images_per_second": images / median_s, name: median_s}
