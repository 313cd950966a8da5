"""Draws the memory of one device over an update: predicted as an area, measured as a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drivetrain.pictures.update.time_axis import TimeAxis
from drivetrain.schedules.recorded_timeline import MemoryStep
from drivetrain.schedules.update_course import UpdateCourse

__all__ = ["AREA", "LASTING", "LIMIT", "LINE", "MemoryPanel", "bytes_in_words"]

AREA, EDGE, LASTING, LINE, LIMIT = "#a9c1ec", "#2f5496", "#8a8a8a", "#222222", "#d0453e"
_SCALES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
# The limit is drawn as a line if the peak comes this close to it; else the line would flatten the course.
_NEAR_LIMIT = 0.4
_HEADROOM = 1.15


@dataclass(frozen=True, slots=True)
class ByteScale:
    """The unit of a memory axis."""

    unit_bytes: float
    name: str

    @classmethod
    def of(cls, most_bytes: int) -> "ByteScale":
        return cls(*next((size, name) for size, name in _SCALES if most_bytes >= size or size == 1.0))


def bytes_in_words(count: int) -> str:
    """A number of bytes with three digits."""
    scale = ByteScale.of(count)
    return f"{count / scale.unit_bytes:.3g} {scale.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPanel:
    """The axis of one device; `most_bytes` is the highest that it shows."""

    axis: Any
    time_axis: TimeAxis
    most_bytes: int
    limit_bytes: int | None

    @property
    def scale(self) -> ByteScale:
        return ByteScale.of(self.most_bytes)

    def draw_predicted(self, course: UpdateCourse, *, device: int) -> None:
        """The predicted memory as an area, what lasts in a darker tone, and its peak."""
        steps = [step for step in course.memory if step.device == device]
        times, sizes = self._corners(steps, course)
        self.axis.fill_between(times, 0, sizes, facecolor=AREA, linewidth=0)
        self.axis.plot(times, sizes, color=EDGE, linewidth=0.8)
        lasting = course.lasting_bytes.get(device, 0) / self.scale.unit_bytes
        self.axis.fill_between([times[0], times[-1]], 0, lasting, facecolor=LASTING, linewidth=0)
        self._mark_peak(steps, course, colour=EDGE, words="peak", height=0.72)

    def draw_measured(self, course: UpdateCourse, *, replica: int, device: int) -> None:
        """The measured memory as a line, and its peak."""
        steps = [step for step in course.memory if (step.replica, step.device) == (replica, device)]
        if steps:
            self.axis.plot(*self._corners(steps, course), color=LINE, linewidth=1.0)
            self._mark_peak(steps, course, colour=LINE, words="measured", height=0.28)

    def finish(self) -> None:
        """Sets the height of the panel, and draws the limit of the device where it is known."""
        top = self.most_bytes * _HEADROOM
        if self.limit_bytes is not None:
            words = f"limit {bytes_in_words(self.limit_bytes)}"
            if self.most_bytes >= _NEAR_LIMIT * self.limit_bytes:
                top = max(top, self.limit_bytes * _HEADROOM)
                height = self.limit_bytes / self.scale.unit_bytes
                self.axis.axhline(height, color=LIMIT, linewidth=1.0, linestyle="--")
            self._beside(words, height=1.0, colour=LIMIT)
        self.axis.set_ylim(0, top / self.scale.unit_bytes)
        self.axis.set_ylabel(self.scale.name, fontsize=8)
        self.axis.tick_params(labelsize=7)

    def _corners(self, steps: Sequence[MemoryStep], course: UpdateCourse) -> tuple[list[float], list[float]]:
        times = [time for step in steps for time in (step.start_s, step.end_s)]
        sizes = [step.held_bytes / self.scale.unit_bytes for step in steps for _ in range(2)]
        return [self.time_axis.place(time, course) for time in times], sizes

    def _mark_peak(
        self, steps: Sequence[MemoryStep], course: UpdateCourse, *, colour: str, words: str, height: float
    ) -> None:
        peak = max(steps, key=lambda step: step.held_bytes)
        middle = self.time_axis.place((peak.start_s + peak.end_s) / 2, course)
        height_there = peak.held_bytes / self.scale.unit_bytes
        self.axis.plot([middle], [height_there], "v", color=colour, markersize=4, clip_on=False)
        self._beside(f"{words} {bytes_in_words(peak.held_bytes)}", height=height, colour=colour)

    def _beside(self, words: str, *, height: float, colour: str) -> None:
        self.axis.text(
            1.005, height, words, transform=self.axis.transAxes, va="center", fontsize=8, color=colour
        )
