"""Draws what each device does during an update: a row per device, a box per pass, time from left to right."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drivetrain.pictures.update.time_axis import TimeAxis
from drivetrain.schedules.recorded_timeline import WAIT, TimedSpan
from drivetrain.schedules.update_course import UpdateCourse

__all__ = ["COLOURS", "Lane", "draw_timeline", "row_names"]

COLOURS = {
    "data": "#b0b0b0",
    "forward": "#4c78c8",
    "backward": "#3f9b5c",
    "input": "#3f9b5c",
    "weight": "#7fae2e",
    "send": "#8e5bb5",
    "gradient sum": "#e6a23c",
    "optimiser update": "#d0453e",
}
Row = tuple[int, int]
_FONT_SIZES = (8.0, 7.0, 6.0)
# The width of a digit as a part of the font size, and inches per point.
_DIGIT, _POINT = 0.62, 1 / 72
# Edges of narrower boxes would hide them.
_EDGED_INCHES = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The part of a row that a course is drawn in: rows are 1 high and grow downwards from their middle."""

    top: float
    height: float
    has_labels: bool = True

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


def row_names(rows: Sequence[Row]) -> list[str]:
    """The devices, with their replica where there are several."""
    has_replicas = len({replica for replica, _ in rows}) > 1
    return [
        f"replica {replica}, device {device}" if has_replicas else f"device {device}"
        for replica, device in rows
    ]


def draw_timeline(
    axis: Any,
    course: UpdateCourse,
    *,
    rows: Sequence[Row],
    lane: Lane,
    time_axis: TimeAxis,
    width_inches: float,
) -> None:
    """Draws a course into its lane of every row; waiting stays empty.

    A label such as "3·1" is micro-batch 3 of stage 1. A course of one replica is drawn for all replicas.
    """
    boxes: dict[tuple[int, str], list[TimedSpan]] = defaultdict(list)
    replicas = {replica for replica, _ in course.rows}
    for index, (replica, device) in enumerate(rows):
        source = replica if replica in replicas else 0
        for span in course.spans:
            if (span.replica, span.device) == (source, device) and span.what != WAIT:
                boxes[index, span.what].append(span)
    brush = _Brush(axis, course, lane=lane, time_axis=time_axis, width_inches=width_inches)
    for (index, what), spans in boxes.items():
        brush.paint(spans, row=index, colour=COLOURS[what])


class _Brush:
    """Paints boxes and their labels."""

    def __init__(
        self, axis: Any, course: UpdateCourse, *, lane: Lane, time_axis: TimeAxis, width_inches: float
    ) -> None:
        self._axis, self._course, self._lane, self._time = axis, course, lane, time_axis
        self._inches = width_inches / time_axis.length
        stages = {span.action.stage for span in course.spans if span.action is not None}
        self._has_several_stages = len(stages) > len({device for _, device in course.rows})

    def paint(self, spans: Sequence[TimedSpan], *, row: int, colour: str) -> None:
        places = [self._place(span) for span in spans]
        self._axis.broken_barh(
            places,
            (row + self._lane.top, self._lane.height),
            facecolor=colour,
            edgecolor="white",
            linewidth=[0.5 if length * self._inches > _EDGED_INCHES else 0.0 for _, length in places],
        )
        if self._lane.has_labels:
            for span, (start, length) in zip(spans, places, strict=True):
                self._write(span, start + length / 2, row, room=length * self._inches)

    def _place(self, span: TimedSpan) -> tuple[float, float]:
        start = self._time.place(span.start_s, self._course)
        return start, self._time.place(span.end_s, self._course) - start

    def _write(self, span: TimedSpan, middle: float, row: int, *, room: float) -> None:
        """The number of a micro-batch, in the largest letters that fit the box."""
        if not span.is_pass:
            return
        text = self._label(span)
        fitting = [size for size in _FONT_SIZES if len(text) * size * _DIGIT * _POINT <= room]
        if fitting:
            # The layout would measure every label, which takes seconds for hundreds.
            self._axis.text(
                middle,
                row + self._lane.middle,
                text,
                ha="center",
                va="center_baseline",
                fontsize=fitting[0],
                color="white",
                clip_on=True,
                in_layout=False,
            )

    def _label(self, span: TimedSpan) -> str:
        assert span.action is not None
        number = str(span.action.micro_batch)
        return f"{number}·{span.action.stage}" if self._has_several_stages else number
