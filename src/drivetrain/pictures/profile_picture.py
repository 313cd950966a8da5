"""Draws profile.png: one update as a pipeline diagram, with a row per device and time from left to right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivetrain.pictures.pyplot import load_pyplot
from drivetrain.schedules.recorded_timeline import TimedSpan

__all__ = ["draw_timeline"]

_COLOURS = {
    "data": "#b0b0b0",
    "wait": "#f0f0f0",
    "forward": "#4c78c8",
    "backward": "#3f9b5c",
    "input": "#3f9b5c",
    "weight": "#7fae2e",
    "send": "#8e5bb5",
    "gradient sum": "#e6a23c",
    "optimiser update": "#d0453e",
}
_MOST_ROWS = 32
_WIDTH_INCHES, _ROW_INCHES, _FRAME_INCHES = 14.0, 0.5, 1.4
# A box that is at least this share of the whole length has room for its number.
_LABELLED_SHARE = 0.012


def draw_timeline(path: Path, spans: Sequence[TimedSpan], *, title: str) -> None:
    """Draws the spans of one update; a label such as "3·1" is micro-batch 3 of stage 1.

    Only the first 32 devices are drawn.
    """
    plt = load_pyplot()
    rows = sorted({(span.replica, span.device) for span in spans})[:_MOST_ROWS]
    height = _FRAME_INCHES + _ROW_INCHES * len(rows)
    figure, axis = plt.subplots(figsize=(_WIDTH_INCHES, height), layout="constrained")
    _Diagram(axis, spans, rows=rows).draw()
    axis.set_title(title, fontsize=10)
    figure.legend(
        handles=[
            plt.Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="#888888", linewidth=0.5, label=what)
            for what, colour in _COLOURS.items()
            if any(span.what == what for span in spans)
        ],
        loc="outside lower center",
        ncols=len(_COLOURS),
        frameon=False,
        fontsize=9,
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


class _Diagram:
    """The boxes and labels of one diagram."""

    def __init__(self, axis: Any, spans: Sequence[TimedSpan], *, rows: list[tuple[int, int]]) -> None:
        self._axis, self._rows = axis, rows
        self._spans = [span for span in spans if (span.replica, span.device) in rows]
        self._begin_s = min(span.start_s for span in self._spans)
        self._length_s = max(span.end_s for span in self._spans) - self._begin_s
        stages = {span.action.stage for span in self._spans if span.action is not None}
        self._has_several_stages = len(stages) > len({device for _, device in rows})
        self._unit, self._name = (1e3, "ms") if self._length_s < 1 else (1.0, "s")

    def draw(self) -> None:
        for span in self._spans:
            self._draw_span(span)
        has_replicas = len({replica for replica, _ in self._rows}) > 1
        names = [
            f"replica {replica}, device {device}" if has_replicas else f"device {device}"
            for replica, device in self._rows
        ]
        self._axis.set_yticks(range(len(self._rows)), names)
        self._axis.set_ylim(len(self._rows) - 0.45, -0.55)
        self._axis.set_xlim(0, self._length_s * self._unit)
        self._axis.set_xlabel(f"{self._name}, update {self._spans[0].update}; the numbers are micro-batches")

    def _draw_span(self, span: TimedSpan) -> None:
        row = self._rows.index((span.replica, span.device))
        start, length = (span.start_s - self._begin_s) * self._unit, span.seconds * self._unit
        self._axis.broken_barh(
            [(start, length)],
            (row - 0.4, 0.8),
            facecolor=_COLOURS[span.what],
            edgecolor="white",
            linewidth=0.4 if span.seconds > _LABELLED_SHARE * self._length_s else 0.0,
        )
        if span.is_busy and span.seconds > _LABELLED_SHARE * self._length_s:
            self._axis.text(
                start + length / 2,
                row,
                self._label(span),
                ha="center",
                va="center",
                fontsize=8,
                color="white",
            )

    def _label(self, span: TimedSpan) -> str:
        assert span.action is not None
        number = str(span.action.micro_batch)
        return f"{number}·{span.action.stage}" if self._has_several_stages else number
