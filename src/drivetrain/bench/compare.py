"""`bench compare`: ratios between benchmark results of the same work, as a table, JSON and a picture.

Imports no torch.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.bench.result import FIGURES
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.files import write_atomically
from drivetrain.pictures.pyplot import load_pyplot

__all__ = [
    "Comparison",
    "Ratio",
    "compare_files",
    "distinct_names",
    "draw_comparison",
    "read_result",
    "require_same_work",
]

_COMPARED = ("images_per_second", "p50_seconds", "p99_seconds", "peak_memory_bytes")
_MOST_NAMED = 3
# Some result files add the thread count of a rank to the processor's name. It is removed before machines are
# compared: it depends on the number of ranks, not on the machine.
_THREADS = re.compile(r", \d+ threads?$")
_GROUP_HEIGHT = 0.8
_INCHES_PER_BAR = 0.3
_TICKS = (0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One figure of one entry in all files; `ratios` divides the other files by the first."""

    entry: str
    figure: str
    values: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(value / self.values[0] for value in self.values[1:])

    @property
    def title(self) -> str:
        return FIGURES[self.figure].title

    @property
    def shown(self) -> list[str]:
        """The values, formatted for a table."""
        return [FIGURES[self.figure].text(value) for value in self.values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Results of several files for the same work; all others are compared with the first.

    `differences` describes, for each of the others, which settings differ from the first.
    """

    names: tuple[str, ...]
    benchmark: str
    ratios: tuple[Ratio, ...]
    warnings: tuple[str, ...]
    differences: tuple[str, ...] = ()

    def rows(self) -> list[list[str]]:
        """The rows of a table: each figure in all files, then its ratios to the first file."""
        first, *others = self.names
        header = ["benchmark", "figure", *self.names, *(f"{name} / {first}" for name in others)]
        return [
            header,
            *(
                [ratio.entry, ratio.title, *ratio.shown, *(f"{value:.3f}x" for value in ratio.ratios)]
                for ratio in self.ratios
            ),
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {
            "benchmark": self.benchmark,
            "files": list(self.names),
            "ratios": [
                {
                    "name": ratio.entry,
                    "figure": ratio.figure,
                    "values": list(ratio.values),
                    "ratios": list(ratio.ratios),
                }
                for ratio in self.ratios
            ],
            "differences": list(self.differences),
            "warnings": list(self.warnings),
        }


def compare_files(paths: Sequence[str]) -> Comparison:
    """The ratios of all figures that every file has; raises if the files measured different work."""
    if len(paths) < 2:
        raise BadInputError("bench compare needs two files or more, for example: bench compare A.json B.json")
    results = [read_result(path) for path in paths]
    for path, result in zip(paths[1:], results[1:], strict=True):
        require_same_work(paths[0], results[0], path, result)
    ratios = tuple(_ratios(results))
    if not ratios:
        raise BadInputError(
            f"{' and '.join(paths)} have no entry in common; give results of the same measurements."
        )
    names = distinct_names(paths)
    return Comparison(
        names=names,
        benchmark=str(results[0]["benchmark"]),
        ratios=ratios,
        warnings=tuple(_warnings(paths, results)),
        differences=tuple(_differences(names, results)),
    )


def read_result(path: str) -> dict[str, Any]:
    """The result of a benchmark in a file; raises if it is none."""
    try:
        value = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise BadInputError(
            f"{path} cannot be read: {reason}; give files that bench --output FILE.json wrote."
        ) from error
    except ValueError as error:
        raise BadInputError(
            f"{path} is not JSON ({error}); give files that bench --output FILE.json wrote."
        ) from error
    if not _is_result(value):
        raise BadInputError(
            f"{path} is not the result of a benchmark; `bench train --output FILE.json` writes one."
        )
    result: dict[str, Any] = value
    return result


def _is_result(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        return False
    has_parts = all(isinstance(value.get(key), dict) for key in ("machine", "workload", "settings"))
    return has_parts and "benchmark" in value and all(_is_entry(entry) for entry in value["entries"])


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def require_same_work(first_path: str, first: Mapping[str, Any], path: str, other: Mapping[str, Any]) -> None:
    """Raises if two results measured different work."""
    if first["benchmark"] != other["benchmark"]:
        raise BadInputError(
            f"{first_path} is a result of bench {first['benchmark']} and {path} of bench "
            f"{other['benchmark']}; compare results of the same benchmark."
        )
    differing = _differing(first["workload"], other["workload"])
    if differing:
        name = differing[0]
        raise BadInputError(
            f"{first_path} and {path} measured different work: {name} is "
            f"{_said(first['workload'].get(name))} in the first and {_said(other['workload'].get(name))} in "
            "the second; compare results of the same work."
        )


def _ratios(results: Sequence[Mapping[str, Any]]) -> list[Ratio]:
    by_name = [{entry["name"]: entry for entry in result["entries"]} for result in results]
    found = []
    for name in by_name[0]:
        if not all(name in entries for entries in by_name):
            continue
        for figure in _COMPARED:
            values = [entries[name].get(figure) for entries in by_name]
            if all(isinstance(value, int | float) and value > 0 for value in values):
                found.append(Ratio(entry=name, figure=figure, values=tuple(map(float, values))))
    return found


def _warnings(paths: Sequence[str], results: Sequence[Mapping[str, Any]]) -> list[str]:
    warnings = []
    first = _machine(results[0])
    for path, result in zip(paths[1:], results[1:], strict=True):
        other = _machine(result)
        differing = _differing(first, other)
        if differing:
            told = "; ".join(
                f"{name} {_said(first.get(name))} versus {_said(other.get(name))}"
                for name in differing[:_MOST_NAMED]
            )
            warnings.append(f"{paths[0]} and {path} were measured on different machines: {told}.")
        missing = {entry["name"] for entry in results[0]["entries"]} ^ {
            entry["name"] for entry in result["entries"]
        }
        if missing:
            warnings.append(f"only one of {paths[0]} and {path} contains {', '.join(sorted(missing))}.")
    return warnings


def _machine(result: Mapping[str, Any]) -> dict[str, Any]:
    """The machine's description without the thread count of a rank."""
    return {
        name: _THREADS.sub("", value) if isinstance(value, str) else value
        for name, value in result["machine"].items()
    }


def _differences(names: Sequence[str], results: Sequence[Mapping[str, Any]]) -> list[str]:
    first = results[0]["settings"]
    found = []
    for name, result in zip(names[1:], results[1:], strict=True):
        other = result["settings"]
        told = [
            f"{key} {_said(first.get(key))} -> {_said(other.get(key))}" for key in _differing(first, other)
        ]
        if told:
            found.append(f"{names[0]} -> {name}: {', '.join(told)}")
    return found


def _said(value: object) -> str:
    return "not set" if value is None else str(value)


def _differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys((*first, *other))
    return [name for name in names if first.get(name) != other.get(name)]


def distinct_names(paths: Sequence[str]) -> tuple[str, ...]:
    """The file names without folder and suffix, or the full paths if two names are the same."""
    stems = [Path(path).stem for path in paths]
    return tuple(stems if len(set(stems)) == len(stems) else paths)


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Draws the ratios as horizontal bars, grouped by figure, on a log scale (0.5x and 2x are symmetric)."""
    plt = load_pyplot()
    first, *others = comparison.names
    groups = len(comparison.ratios)
    height = _INCHES_PER_BAR * groups * (len(others) + 0.6) + 1.6
    figure, axes = plt.subplots(figsize=(8, height), layout="constrained")
    thickness = _GROUP_HEIGHT / len(others)
    for number, name in enumerate(others):
        offset = (number - (len(others) - 1) / 2) * thickness
        widths = [ratio.ratios[number] for ratio in comparison.ratios]
        places = [place + offset for place in range(groups)]
        bars = axes.barh(places, [width - 1 for width in widths], left=1, height=thickness, label=name)
        axes.bar_label(bars, labels=[f"{width:.2f}x" for width in widths], padding=3, fontsize=8)
    axes.set_xscale("log", base=2)
    _set_limits(axes, [value for ratio in comparison.ratios for value in ratio.ratios])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(groups), [_label(ratio.entry, ratio.figure) for ratio in comparison.ratios])
    axes.invert_yaxis()
    axes.set_xlabel(f"ratio to {first}")
    axes.set_title(f"bench {comparison.benchmark}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    plt.close(figure)
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:
        raise RunFailedError(f"--picture {path} could not be written: {error.strerror}.") from error


def _label(entry: str, figure: str) -> str:
    better = "higher is better" if FIGURES[figure].is_speed else "lower is better"
    return f"{entry}\n{FIGURES[figure].title} ({better})"


def _set_limits(axes: object, ratios: list[float]) -> None:
    """Leaves room for the numbers beside the bars, and sets readable ticks."""
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter, NullFormatter

    assert isinstance(axes, Axes)
    reach = max(1.2, *(max(ratio, 1 / ratio) for ratio in ratios)) ** 1.25
    axes.set_xlim(1 / reach, reach)
    axes.set_xticks([tick for tick in _TICKS if 1 / reach <= tick <= reach])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
