"""Ratios of benchmarks as a picture."""

import io
from pathlib import Path

from drivetrain.bench.compare import Comparison
from drivetrain.bench.result import FIGURES
from drivetrain.core.errors import RunFailedError
from drivetrain.core.files import write_atomically
from drivetrain.pictures.pyplot import load_pyplot

__all__ = ["draw_comparison"]

_GROUP_HEIGHT = 0.8
_INCHES_PER_BAR = 0.3
_TICKS = (0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 8)


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Horizontal bars, a group for each figure, on a scale on which half and twice are equally far from 1."""
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
    axes.set_xlabel(f"times {first}")
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
    better = "more is better" if FIGURES[figure].is_speed else "less is better"
    return f"{entry}\n{FIGURES[figure].title} ({better})"


def _set_limits(axes: object, ratios: list[float]) -> None:
    """Room for the numbers beside the bars, and ticks a person reads."""
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter, NullFormatter

    assert isinstance(axes, Axes)
    reach = max(1.2, *(max(ratio, 1 / ratio) for ratio in ratios)) ** 1.25
    axes.set_xlim(1 / reach, reach)
    axes.set_xticks([tick for tick in _TICKS if 1 / reach <= tick <= reach])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
