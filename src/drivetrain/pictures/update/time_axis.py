"""The time axis that the timeline and the memory of an update share."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.schedules.pass_times import TimeUnit
from drivetrain.schedules.update_course import UpdateCourse

__all__ = ["TimeAxis"]

_SECONDS = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs"))
_RELATIVE = "forward passes of one micro-batch through the whole model, by FLOPs"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """Times of a picture: `scale` turns them into the unit `name`; every course begins at its first pass."""

    scale: float
    name: str
    first: float
    last: float

    @classmethod
    def of(cls, courses: Sequence[UpdateCourse], *, unit: TimeUnit) -> "TimeAxis":
        """An axis that is long enough for all courses."""
        first = min(span.start_s - course.origin_s for course in courses for span in course.spans)
        last = max(span.end_s - course.origin_s for course in courses for span in course.spans)
        scale, name = 1.0, _RELATIVE
        if unit == "s":
            scale, name = next((by, name) for least, by, name in _SECONDS if last - first >= least)
        return cls(scale=scale, name=name, first=first * scale, last=last * scale)

    @property
    def length(self) -> float:
        return self.last - self.first

    def place(self, time_s: float, course: UpdateCourse) -> float:
        """Where a time of a course lies on the axis."""
        return (time_s - course.origin_s) * self.scale
