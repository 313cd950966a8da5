"""Draws an update as one picture: its timeline and, below it on the same time axis, the memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.pictures.pyplot import load_pyplot
from drivetrain.pictures.update.memory_panel import AREA, LASTING, LINE, MemoryPanel
from drivetrain.pictures.update.time_axis import TimeAxis
from drivetrain.pictures.update.timeline import COLOURS, Lane, draw_timeline, row_names
from drivetrain.schedules.pass_times import TimeUnit
from drivetrain.schedules.recorded_timeline import WAIT
from drivetrain.schedules.update_course import UpdateCourse

__all__ = ["UpdatePicture", "draw_update", "update_figure"]

_MOST_ROWS, _MOST_PANELS = 32, 16
_LEAST_INCHES, _MOST_INCHES, _PASS_INCHES, _MARGIN_INCHES = 10.0, 26.0, 0.17, 2.6
_LEGEND_INCHES = 2.4
_FRAME_INCHES, _ROW_INCHES, _PANEL_INCHES = 1.3, 0.42, 0.75
_WHOLE_ROW = Lane(top=-0.42, height=0.84)
_MEASURED = Lane(top=-0.42, height=0.58)
_PREDICTED = Lane(top=0.19, height=0.23, has_labels=False)
_DOTS_PER_INCH = 100
# Without these, files of equal pictures differ by the time and by random names.
_SVG = {"svg.hashsalt": "drivetrain", "svg.fonttype": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePicture:
    """An update as predicted, as measured, or both; `limit_bytes` is the memory of each device."""

    title: str
    predicted: UpdateCourse | None = None
    measured: UpdateCourse | None = None
    unit: TimeUnit = "s"
    limit_bytes: int | None = None

    @property
    def courses(self) -> list[UpdateCourse]:
        return [course for course in (self.measured, self.predicted) if course is not None]

    @property
    def has_memory(self) -> bool:
        return any(course.memory for course in self.courses)


def draw_update(paths: Sequence[Path], picture: UpdatePicture, *, with_memory: bool) -> None:
    """Writes the picture to files, as PNG or SVG by their names."""
    plt = load_pyplot()
    figure = update_figure(picture, with_memory=with_memory)
    with plt.rc_context(_SVG):
        for path in paths:
            when = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
            figure.savefig(path, dpi=_DOTS_PER_INCH, **when)
    plt.close(figure)


def update_figure(picture: UpdatePicture, *, with_memory: bool) -> Any:
    """The picture as a figure of matplotlib: an axis for the timeline, then one per device for its memory.

    Only the first 32 devices are drawn, and the memory of the first 16.
    """
    plt = load_pyplot()
    rows = picture.courses[0].rows[:_MOST_ROWS]
    panels = rows[:_MOST_PANELS] if with_memory and picture.has_memory else []
    time_axis = TimeAxis.of(picture.courses, unit=picture.unit)
    width, row_inches = _width(picture), _ROW_INCHES * (1.4 if len(picture.courses) > 1 else 1.0)
    heights = [row_inches * max(len(rows), 2), *(_PANEL_INCHES for _ in panels)]
    figure, axes = plt.subplots(
        len(heights),
        squeeze=False,
        sharex=True,
        figsize=(width, _FRAME_INCHES + sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    timeline, *below = axes[:, 0]
    lanes = [_MEASURED, _PREDICTED] if len(picture.courses) > 1 else [_WHOLE_ROW]
    for course, lane in zip(picture.courses, lanes, strict=True):
        draw_timeline(
            timeline,
            course,
            rows=rows,
            lane=lane,
            time_axis=time_axis,
            width_inches=width - _MARGIN_INCHES,
        )
    timeline.set_yticks(range(len(rows)), row_names(rows))
    timeline.set_ylim(len(rows) - 0.45, -0.55)
    timeline.set_xlim(time_axis.first, time_axis.last)
    timeline.set_title(picture.title, fontsize=10)
    _draw_memory(below, picture, rows=panels, time_axis=time_axis)
    both = "; in each row measured above, predicted below" if len(picture.courses) > 1 else ""
    axes[-1, 0].set_xlabel(f"{time_axis.name}{both}")
    figure.legend(
        handles=_legend(plt, picture, has_memory=bool(panels)),
        loc="outside lower center",
        ncols=max(1, int(width / _LEGEND_INCHES)),
        frameon=False,
        fontsize=9,
    )
    return figure


def _width(picture: UpdatePicture) -> float:
    """Wide enough for the numbers in the boxes of the longest row, within reason."""
    course = picture.courses[0]
    passes = [span for span in course.spans if span.is_pass]
    longest = max(sum((span.replica, span.device) == row for span in passes) for row in course.rows)
    return min(max(_PASS_INCHES * longest + _MARGIN_INCHES, _LEAST_INCHES), _MOST_INCHES)


def _draw_memory(
    axes: Sequence[Any], picture: UpdatePicture, *, rows: Sequence[tuple[int, int]], time_axis: TimeAxis
) -> None:
    for axis, (replica, device), name in zip(axes, rows, row_names(rows), strict=True):
        shown = [step for course in picture.courses for step in course.memory if step.device == device]
        panel = MemoryPanel(
            axis=axis,
            time_axis=time_axis,
            most_bytes=max(step.held_bytes for step in shown),
            limit_bytes=picture.limit_bytes,
        )
        if picture.predicted is not None and picture.predicted.memory:
            panel.draw_predicted(picture.predicted, device=device)
        if picture.measured is not None:
            panel.draw_measured(picture.measured, replica=replica, device=device)
        panel.finish()
        axis.set_title(name, fontsize=8, loc="left", pad=2)


def _legend(plt: Any, picture: UpdatePicture, *, has_memory: bool) -> list[Any]:
    """What the colours mean, as far as they are in the picture."""
    drawn = {span.what for course in picture.courses for span in course.spans} - {WAIT}
    words = {colour: what for what, colour in COLOURS.items() if what in drawn}
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=colour, label=what) for colour, what in words.items()]
    if has_memory and picture.predicted is not None and picture.predicted.memory:
        lasting = "what lasts: weights, gradients, optimiser"
        handles.append(plt.Rectangle((0, 0), 1, 1, facecolor=LASTING, label=lasting))
        handles.append(plt.Rectangle((0, 0), 1, 1, facecolor=AREA, label="activations, predicted"))
    if has_memory and picture.measured is not None and picture.measured.memory:
        handles.append(plt.Line2D([], [], color=LINE, label="memory, measured between passes"))
    return handles
