"""The figures of suites: speed-up over arithmetic intensity, and the roofline of a device, as PNG and SVG."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.bench.result import number_text
from drivetrain.bench.suite.case import WORKS, Work
from drivetrain.bench.suite.labels import Box, place_labels
from drivetrain.bench.suite.speedups import Intensity, Pair, is_of_its_variant
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.files import write_atomically
from drivetrain.pictures.pyplot import load_pyplot

__all__ = ["draw_rooflines", "draw_speedups"]

_TITLES = {"infer": "inference", "train": "training"}
_COLOURS = ("#0b5394", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_MARKER_POINTS = 5.5
_LABEL_POINTS = 7
# A label farther from its point than this many pixels gets a line to it.
_NEAR = 10.0
_INTENSITY = {
    "parameter": "arithmetic intensity: FLOPs of one image per trainable parameter",
    "byte": "arithmetic intensity: FLOPs per byte read and written",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A point of a panel; only some have a label, and `group` and `size` choose colour and marker."""

    x: float
    y: float
    label: str
    group: str
    size: int


def draw_speedups(pairs: Sequence[Pair], path: Path, *, per: Intensity) -> list[Path]:
    """Draws speed-ups over intensity, a panel for inference and one for training; returns the files."""
    panels = _filled({work: _speedup_points(pairs, work, per) for work in WORKS})
    if not panels:
        raise BadInputError(
            f"no case has FLOPs per {per}, so there is no figure; --intensity "
            f"{'byte' if per == 'parameter' else 'parameter'} may have some."
        )
    groups = [pair.title for pair in pairs]

    def decorate(axes: Any, work: str) -> None:
        axes.axhline(1, color="black", linewidth=1, linestyle="--")
        axes.set_title(_TITLES[work])
        axes.set_xlabel(_INTENSITY[per])
        axes.set_ylabel(f"speed-up: {groups[0]}" if len(groups) == 1 else "speed-up")
        _plain_ticks(axes.xaxis)
        _plain_ticks(axes.yaxis, suffix="x")

    return _draw(panels, path, groups=groups, decorate=decorate, includes_y=1.0)


def _filled(panels: Mapping[Work, Sequence[_Point]]) -> dict[str, Sequence[_Point]]:
    return {work: points for work, points in panels.items() if points}


def _speedup_points(pairs: Sequence[Pair], work: str, per: Intensity) -> list[_Point]:
    return [
        _Point(x=x, y=each.speedup, label=each.label, group=pair.title, size=each.batch_size)
        for pair in pairs
        for each in pair.speedups
        if each.work == work and (x := each.intensity(per)) is not None
    ]


def draw_rooflines(result: Mapping[str, Any], path: Path) -> list[Path]:
    """Draws, for each device, the speed reached over FLOPs per byte, under the device's measured peaks."""
    entries = [
        entry
        for entry in result["entries"]
        if "flops_per_byte" in entry and "images_per_second" in entry and is_of_its_variant(entry)
    ]
    files = []
    for device in dict.fromkeys(entry["device"] for entry in entries):
        own = [entry for entry in entries if entry["device"] == device]
        name = f"{path.name}-roofline-{device.replace(':', '')}"
        files += _draw_roofline(own, path.with_name(name), machine=result["machine"].get(device, {}))
    return files


def _draw_roofline(
    entries: Sequence[Mapping[str, Any]], path: Path, *, machine: Mapping[str, Any]
) -> list[Path]:
    peak = max(entry["peak_tflops"] for entry in entries)
    bandwidth = max(entry["peak_gb_per_second"] for entry in entries) / 1e3
    groups = list(dict.fromkeys(entry["variant"] for entry in entries))
    panels = _filled({work: _roofline_points(entries, work) for work in WORKS})
    device = machine.get("device") or machine.get("cpu") or entries[0]["device"]

    def decorate(axes: Any, work: str) -> None:
        low, high = axes.get_xlim()
        low, high = min(low, 0.5 * peak / bandwidth), max(high, 2 * peak / bandwidth)
        corners = [low, peak / bandwidth, high]
        axes.plot(corners, [min(peak, bandwidth * x) for x in corners], color="black", linewidth=1)
        axes.set_xlim(low, high)
        axes.set_title(f"{_TITLES[work]}, {device}")
        axes.set_xlabel(_INTENSITY["byte"])
        axes.set_ylabel(
            f"TFLOP/s (peak {number_text(peak)}, memory {number_text(1e3 * bandwidth)} GB/s, both measured)"
        )
        _plain_ticks(axes.xaxis)
        _plain_ticks(axes.yaxis)

    return _draw(panels, path, groups=groups, decorate=decorate, includes_y=peak)


def _roofline_points(entries: Sequence[Mapping[str, Any]], work: str) -> list[_Point]:
    return [
        _Point(
            x=entry["flops_per_byte"],
            y=entry["tflops"],
            label=entry["label"],
            group=entry["variant"],
            size=entry["batch_size"],
        )
        for entry in entries
        if entry["work"] == work
    ]


def _draw(
    panels: Mapping[str, Sequence[_Point]],
    path: Path,
    *,
    groups: Sequence[str],
    decorate: Callable[[Any, str], None],
    includes_y: float,
) -> list[Path]:
    """Draws the panels side by side and writes PATH.png and PATH.svg."""
    plt = load_pyplot()
    figure, all_axes = plt.subplots(
        1, len(panels), figsize=(8.5 * len(panels), 7.5), layout="constrained", squeeze=False
    )
    sizes = sorted({point.size for points in panels.values() for point in points})
    try:
        for axes, (work, points) in zip(all_axes[0], panels.items(), strict=True):
            axes.set_xscale("log")
            axes.set_yscale("log")
            _scatter(axes, points, groups=groups, sizes=sizes)
            _set_limits(axes, points, includes_y=includes_y)
            decorate(axes, work)
            axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.legend(fontsize=8, loc="best")
        # The layout is settled before labels are placed, so that their pixels are final.
        figure.canvas.draw()
        figure.set_layout_engine("none")
        for axes, points in zip(all_axes[0], panels.values(), strict=True):
            _label(figure, axes, points)
        return _write(figure, path)
    finally:
        plt.close(figure)


def _scatter(axes: Any, points: Sequence[_Point], *, groups: Sequence[str], sizes: Sequence[int]) -> None:
    """One colour per group and one marker per batch size; with a single group, colours follow the size."""
    for number, group in enumerate(groups):
        for rank, size in enumerate(sizes):
            own = [point for point in points if (point.group, point.size) == (group, size)]
            if not own:
                continue
            colour = _COLOURS[(rank if len(groups) == 1 else number) % len(_COLOURS)]
            name = f"batch {size}" if len(groups) == 1 else f"{group}, batch {size}"
            axes.plot(
                [point.x for point in own],
                [point.y for point in own],
                linestyle="",
                marker=_MARKERS[rank % len(_MARKERS)],
                markersize=_MARKER_POINTS,
                color=colour,
                label=name,
            )
    # The same case in several groups has one place on the horizontal axis: a thin line joins its points.
    for column in _columns(points):
        if len(column) > 1:
            axes.plot(
                [point.x for point in column],
                [point.y for point in column],
                color="#9ca3af",
                linewidth=0.5,
                zorder=1,
            )


def _columns(points: Sequence[_Point]) -> list[list[_Point]]:
    """The points of each case, the highest first."""
    found: dict[tuple[str, int], list[_Point]] = {}
    for point in points:
        found.setdefault((point.label, point.size), []).append(point)
    return [sorted(column, key=lambda point: -point.y) for column in found.values()]


def _set_limits(axes: Any, points: Sequence[_Point], *, includes_y: float) -> None:
    """Leaves room for labels on all sides."""
    across = [point.x for point in points]
    up = [*(point.y for point in points), includes_y]
    margin = 1.25
    for low, high, set_limits in (
        (min(across), max(across), axes.set_xlim),
        (min(up), max(up), axes.set_ylim),
    ):
        reach = margin * (high / low) ** 0.08
        set_limits(low / reach, high * reach)


def _plain_ticks(axis: Any, *, suffix: str = "") -> None:
    """Plain numbers at 1, 2 and 5 of each decade, as 10^0.3 says little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{suffix}"))
    axis.set_minor_formatter(NullFormatter())


def _label(figure: Any, axes: Any, points: Sequence[_Point]) -> None:
    """Writes the label of each case beside its highest point, where no other label or point is."""
    renderer = figure.canvas.get_renderer()
    highest = [column[0] for column in _columns(points)]
    texts = [
        axes.text(point.x, point.y, point.label, fontsize=_LABEL_POINTS, ha="center", va="center")
        for point in highest
    ]
    extents = [text.get_window_extent(renderer) for text in texts]
    from_pixels = axes.transData.inverted().transform
    pixels = [_pixel(axes, point) for point in highest]
    window, legend = axes.get_window_extent(renderer), axes.get_legend().get_window_extent(renderer)
    boxes = place_labels(
        pixels,
        [(extent.width, extent.height) for extent in extents],
        area=_box(window),
        marker=_MARKER_POINTS * figure.dpi / 72,
        also_free=[_pixel(axes, point) for point in points],
        taken=[_box(legend)],
    )
    for text, point, pixel, box in zip(texts, highest, pixels, boxes, strict=True):
        if box is None:
            text.remove()
            continue
        place = from_pixels((box.x, box.y))
        text.set_position(place)
        gap_x = max(0.0, abs(pixel[0] - box.x) - box.width / 2)
        gap_y = max(0.0, abs(pixel[1] - box.y) - box.height / 2)
        if max(gap_x, gap_y) > _NEAR:
            axes.plot([point.x, place[0]], [point.y, place[1]], color="#6b7280", linewidth=0.5, linestyle=":")
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.2})


def _pixel(axes: Any, point: _Point) -> tuple[float, float]:
    x, y = axes.transData.transform((point.x, point.y))
    return float(x), float(y)


def _box(extent: Any) -> Box:
    return Box(
        (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2, float(extent.width), float(extent.height)
    )


def _write(figure: Any, path: Path) -> list[Path]:
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    for file in files:
        content = io.BytesIO()
        figure.savefig(content, format=file.suffix[1:], dpi=figure.dpi)
        try:
            write_atomically(file, content.getvalue())
        except OSError as error:
            raise RunFailedError(f"--figure {file} could not be written: {error.strerror}.") from error
    return files
