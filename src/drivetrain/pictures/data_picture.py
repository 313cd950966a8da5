"""One picture of a data set: some samples of each class, or images with outlined masks, and histograms."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import ceil
from typing import Any

import numpy as np

from drivetrain.catalogue.metrics import foreground_first
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.data.fingerprint.looked_at import LookedAt
from drivetrain.data.fingerprint.measure import Measured
from drivetrain.pictures.overlays import class_colours, displayable, paint_classes
from drivetrain.pictures.pyplot import load_pyplot

__all__ = ["PictureSamples", "data_picture"]

_PER_CLASS, _MOST_CLASSES, _MOST_MASKED = 8, 12, 8
_COLUMNS = 8
_CELL_INCHES, _HISTOGRAM_INCHES = 1.35, 3.0
_MOST_BARS = 40
_BINS = 30
_DPI = 110
_NAME_CHARACTERS, _TITLE_CHARACTERS = 20, 110
# Rows of masked images: the least and the largest height as a part of their width.
_FLATTEST, _TALLEST = 0.3, 1.5


@dataclass(slots=True)
class PictureSamples:
    """Chooses samples for the picture: eight of each of the first classes, or eight images with masks."""

    _taken: Counter[int] = field(default_factory=Counter)

    def keeps(self, looked: LookedAt) -> bool:
        """Whether to keep a sample that was just opened."""
        if looked.mask is not None:
            key, most = 0, _MOST_MASKED
        else:
            key, most = looked.label or 0, _PER_CLASS if (looked.label or 0) < _MOST_CLASSES else 0
        self._taken[key] += 1
        return self._taken[key] <= most


def data_picture(measured: Measured, *, title: str) -> bytes:
    """The picture as a PNG file."""
    plt = load_pyplot()
    found = measured.fingerprint
    rows = _rows(measured.samples, found)
    row_inches = _row_inches(measured.samples)
    height = len(rows) * row_inches + _HISTOGRAM_INCHES + 0.6
    figure = plt.figure(figsize=(_COLUMNS * _CELL_INCHES, height), layout="constrained", dpi=_DPI)
    above, below = figure.subfigures(2, 1, height_ratios=(len(rows) * row_inches, _HISTOGRAM_INCHES))
    _draw_samples(above, rows, found)
    _draw_histograms(below, measured)
    figure.suptitle(textwrap.fill(title, _TITLE_CHARACTERS), fontsize=11)
    content = BytesIO()
    figure.savefig(content, format="png")
    plt.close(figure)
    return content.getvalue()


def _row_inches(samples: Sequence[LookedAt]) -> float:
    """The height of a row: images with masks come four to a row, and are as high as their shape asks for."""
    shapes = [looked.pixels.shape for looked in samples if looked.mask is not None]
    if not shapes:
        return _CELL_INCHES
    tallest = max(float(shape[0] / shape[1]) for shape in shapes)
    return 2 * _CELL_INCHES * min(max(tallest, _FLATTEST), _TALLEST)


def _short(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"


def _rows(samples: Sequence[LookedAt], found: Fingerprint) -> list[tuple[str, list[LookedAt]]]:
    """The rows of samples with their titles: one row for each class, or rows of images with masks."""
    if any(looked.mask is not None for looked in samples):
        count = ceil(len(samples) / (_COLUMNS // 2))
        half = _COLUMNS // 2
        return [("", list(samples[row * half : (row + 1) * half])) for row in range(count)] or [("", [])]
    labels = sorted({looked.label or 0 for looked in samples})
    return [
        (
            f"{_short(found.class_names[label])}\n{found.class_counts[label]}",
            [looked for looked in samples if looked.label == label],
        )
        for label in labels
    ] or [("", [])]


def _draw_samples(part: Any, rows: list[tuple[str, list[LookedAt]]], found: Fingerprint) -> None:
    columns = max(1, *(len(samples) for _, samples in rows))
    axes = part.subplots(len(rows), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for line, (name, samples) in zip(axes, rows, strict=True):
        for axis, looked in zip(line, samples, strict=False):
            axis.imshow(_shown(looked, found))
        line[0].text(-0.08, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=8)
    if found.objects is not None or found.pixel_shares:
        _draw_legend(part, found)


def _shown(looked: LookedAt, found: Fingerprint) -> Any:
    pixels = displayable(looked.pixels)
    if looked.mask is None:
        return pixels
    return paint_classes(pixels, looked.mask, class_names=found.class_names)


def _draw_legend(part: Any, found: Fingerprint) -> None:
    from matplotlib.patches import Patch

    colours = [*zip(found.class_names, class_colours(found.class_names), strict=True)][:_MOST_BARS]
    patches = [
        Patch(facecolor=_as_fractions(colour or (255, 255, 255)), edgecolor="tab:gray", label=_short(name))
        for name, colour in colours
    ]
    part.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=7, frameon=False)


def _as_fractions(colour: tuple[int, int, int]) -> tuple[float, float, float]:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255


def _draw_histograms(part: Any, measured: Measured) -> None:
    found = measured.fingerprint
    classes, brightness, sizes = part.subplots(1, 3)
    _draw_classes(classes, found)
    brightness.hist(measured.brightness, bins=_BINS, color="tab:gray")
    brightness.set_title("mean brightness of images", fontsize=9)
    if measured.diameters_px:
        edges = np.geomspace(min(measured.diameters_px), max(measured.diameters_px) + 1, _BINS)
        sizes.hist(measured.diameters_px, bins=edges, color="tab:green")
        sizes.set_xscale("log")
        sizes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        sizes.set_title("diameter of objects in pixels", fontsize=9)
    else:
        _draw_sizes(sizes, measured)
    for axis in (classes, brightness, sizes):
        axis.tick_params(labelsize=7)


def _draw_sizes(axis: Any, measured: Measured) -> None:
    """A point for each image, or a sentence if all have one size."""
    axis.set_title("width and height of images in pixels", fontsize=9)
    heights, widths = zip(*measured.sides_px, strict=True)
    if len(set(measured.sides_px)) == 1:
        axis.text(0.5, 0.5, f"all are {widths[0]:g} wide\nand {heights[0]:g} high", ha="center", va="center")
        axis.set_axis_off()
        return
    axis.scatter(widths, heights, s=12, alpha=0.4, color="tab:blue", edgecolors="none")
    axis.set_xlim(0, max(widths) * 1.1)
    axis.set_ylim(0, max(heights) * 1.1)


def _draw_classes(axis: Any, found: Fingerprint) -> None:
    """Images of each class, or the share of pixels of each class of masks."""
    values: Sequence[float] = found.pixel_shares or found.class_counts
    order = foreground_first(found.class_names) if found.pixel_shares else range(len(values))
    names = [_short(found.class_names[index]) for index in order][:_MOST_BARS]
    axis.barh(range(len(names)), [values[index] for index in order][:_MOST_BARS], color="tab:blue")
    axis.set_yticks(range(len(names)), names if len(names) <= _MOST_CLASSES * 2 else [""] * len(names))
    axis.invert_yaxis()
    axis.set_title("share of pixels" if found.pixel_shares else "images of each class", fontsize=9)
