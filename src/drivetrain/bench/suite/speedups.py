"""Speed-ups between results of suites, or between the variants of one, for a table and a figure.

Imports no torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from drivetrain.bench.compare import distinct_names, read_result, require_same_work
from drivetrain.bench.result import number_text
from drivetrain.bench.suite.case import WORKS, series_name
from drivetrain.core.errors import BadInputError

__all__ = [
    "Intensity",
    "Pair",
    "Speedup",
    "compare_suites",
    "differing_settings",
    "is_of_its_variant",
    "is_suite",
    "read_suite",
    "series_of",
    "speedup_rows",
    "suite_name",
]

Intensity = Literal["parameter", "byte"]
_Key = tuple[str, str, int]
Series = Mapping[_Key, Mapping[str, Any]]
_RESULT = "suite.json"
_NAMED_SETTINGS = ("precision", "num_threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """A case that both sides measured: images/s of the other side divided by those of the base."""

    label: str
    work: str
    model: str
    batch_size: int
    speedup: float
    per_parameter: float | None
    per_byte: float | None

    def intensity(self, per: Intensity) -> float | None:
        """The FLOPs per parameter or per byte, if they are known."""
        return self.per_parameter if per == "parameter" else self.per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two series with the cases that both have."""

    base: str
    other: str
    speedups: tuple[Speedup, ...]

    @property
    def title(self) -> str:
        return f"{self.other} / {self.base}"

    def mean(self, work: str) -> float | None:
        """The geometric mean of the speed-ups of trainings, or of inference; None without any."""
        found = [math.log(each.speedup) for each in self.speedups if each.work == work]
        return math.exp(sum(found) / len(found)) if found else None


def is_suite(path: str) -> bool:
    """Whether a path is a suite's folder, or the result of one; what cannot be read is neither."""
    if Path(path).is_dir():
        return True
    try:
        return bool(read_result(path)["benchmark"] == "suite")
    except BadInputError:
        return False


def read_suite(path: str) -> dict[str, Any]:
    """The result of a suite from its folder or its file."""
    file = Path(path) / _RESULT if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise BadInputError(
            f"{path} has no {_RESULT}; `drivetrain bench suite --output {path}` writes it at its end."
        )
    result = read_result(str(file))
    if result["benchmark"] != "suite":
        raise BadInputError(
            f"{path} is a result of bench {result['benchmark']}, not of a suite; compare it with results of "
            "the same benchmark."
        )
    return result


def series_of(result: Mapping[str, Any]) -> Mapping[str, Series]:
    """The measured cases of a suite by device and variant, without those that fell back to another."""
    found: dict[str, dict[_Key, Mapping[str, Any]]] = {}
    for entry in result["entries"]:
        if is_of_its_variant(entry) and isinstance(entry.get("images_per_second"), int | float):
            key = (entry["work"], entry["model"], entry["batch_size"])
            found.setdefault(series_name(entry["device"], entry["variant"]), {})[key] = entry
    return found


def is_of_its_variant(entry: Mapping[str, Any]) -> bool:
    """Whether an entry was executed as its variant says, or ended before."""
    return not str(entry.get("status", "")).startswith("not ")


def compare_suites(paths: Sequence[str]) -> list[Pair]:
    """One file: its other series against its first. Several: the series of the others against the first's."""
    results = [read_suite(path) for path in paths]
    for path, result in zip(paths[1:], results[1:], strict=True):
        require_same_work(paths[0], results[0], path, result)
    names = distinct_names([suite_name(path) for path in paths])
    of_files = [series_of(result) for result in results]
    if len(paths) == 1:
        (base, series), *others = of_files[0].items() or [("", {})]
        pairs = [_pair(base, series, name, other) for name, other in others]
    else:
        pairs = [
            _pair(f"{names[0]} {base}", of_files[0][base], f"{name} {other}", series[other])
            for name, series in zip(names[1:], of_files[1:], strict=True)
            for base, other in _matches(list(of_files[0]), list(series))
        ]
    return [pair for pair in pairs if pair.speedups]


def differing_settings(paths: Sequence[str]) -> list[str]:
    """A sentence for each setting that changes speed and that the suites do not share."""
    settings = [read_suite(path)["settings"] for path in paths]
    found = []
    for name in _NAMED_SETTINGS:
        values = ["torch's choice" if each.get(name) is None else str(each[name]) for each in settings]
        if len(set(values)) > 1:
            said = ", ".join(f"{value} in {path}" for value, path in zip(values, paths, strict=True))
            found.append(f"the suites differ in --{name.replace('_', '-')}: {said}")
    return found


def suite_name(path: str) -> str:
    """The name of a suite in tables: that of its folder, or of its file."""
    place = Path(path)
    return str(place.parent if place.name == _RESULT and place.parent.name else place)


def _matches(base: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    """What to compare: everything with a single base, else the same device and variant, else variants."""
    if len(base) == 1:
        return [(base[0], other) for other in others]
    if set(base) & set(others):
        return [(name, name) for name in base if name in others]
    variants = {name.rpartition(" ")[2]: name for name in base}
    same = [
        (variants[name.rpartition(" ")[2]], name) for name in others if name.rpartition(" ")[2] in variants
    ]
    return same or [(name, others[0]) for name in base]


def _pair(base: str, base_series: Series, other: str, series: Series) -> Pair:
    return Pair(
        base=base,
        other=other,
        speedups=tuple(
            Speedup(
                label=entry["label"],
                work=entry["work"],
                model=entry["model"],
                batch_size=entry["batch_size"],
                speedup=series[key]["images_per_second"] / entry["images_per_second"],
                per_parameter=entry.get("flops_per_parameter"),
                per_byte=entry.get("flops_per_byte"),
            )
            for key, entry in base_series.items()
            if key in series
        ),
    )


def speedup_rows(pairs: Sequence[Pair]) -> list[list[str]]:
    """The rows of a table: every case with its speed-up in each pair, then the geometric means."""
    cases = {(each.work, each.model, each.batch_size): each for pair in pairs for each in pair.speedups}
    by_pair = [
        {(each.work, each.model, each.batch_size): each.speedup for each in pair.speedups} for pair in pairs
    ]
    table = [["case", "FLOP/param", "FLOP/byte", *(pair.title for pair in pairs)]]
    for key, case in cases.items():
        table.append(
            [
                f"{case.work} {case.model} batch {case.batch_size}",
                *(
                    "-" if value is None else number_text(value)
                    for value in (case.per_parameter, case.per_byte)
                ),
                *(f"{found[key]:.2f}x" if key in found else "-" for found in by_pair),
            ]
        )
    for work in WORKS:
        means = [pair.mean(work) for pair in pairs]
        if any(mean is not None for mean in means):
            shown = ("-" if mean is None else f"{mean:.2f}x" for mean in means)
            table.append([f"{work}, geometric mean", "", "", *shown])
    return table
