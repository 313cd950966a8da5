"""An update over time, predicted or measured: what every device does and how much memory it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.observer import Part
from drivetrain.schedules.pass_times import PassTimes
from drivetrain.schedules.recorded_timeline import MemoryStep, TimedSpan
from drivetrain.schedules.simulator import Simulation, simulate

__all__ = ["UpdateCourse", "measured_course", "simulated_course"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCourse:
    """One update; times are seconds, or the unit of the times that it was simulated with.

    `lasting_bytes` is what a device holds throughout: weights, gradients, optimiser states.
    """

    spans: Sequence[TimedSpan]
    memory: Sequence[MemoryStep] = ()
    lasting_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[int, int]]:
        """The replica and device of every row."""
        return sorted({(span.replica, span.device) for span in self.spans})

    @property
    def origin_s(self) -> float:
        """The start of the first pass, where courses are laid over each other."""
        return min(span.start_s for span in self.spans if span.is_pass)


def simulated_course(
    schedule: Schedule, *, edges: Sequence[Edge], times: PassTimes, bytes_of: Mapping[str, int]
) -> tuple[Simulation, UpdateCourse]:
    """The simulation of an update as a course, without memory; devices move their weights at its end."""
    found = simulate(
        schedule,
        edges=edges,
        forward_s=times.forward,
        backward_s=times.backward,
        latency_s=times.latency_s,
        bytes_of=None if times.bytes_per_s is None else bytes_of,
        bytes_per_s=times.bytes_per_s,
    )
    spans = [
        TimedSpan(0, span.device, 0, span.action.kind.name.lower(), span.action, span.start_s, span.end_s)
        for span in found.timeline
    ]
    end_s = found.seconds_per_update
    if times.update:
        spans += [
            TimedSpan(0, device, 0, Part.OPTIMISER.value, None, end_s, end_s + times.update)
            for device in range(schedule.devices)
        ]
    return found, UpdateCourse(spans=spans)


def measured_course(spans: Sequence[TimedSpan]) -> UpdateCourse:
    """Recorded spans as a course: what a device held at the end of an action it holds until the next end."""
    memory = [
        MemoryStep(replica, device, before.end_s, after.end_s, before.memory_bytes)
        for replica, device in sorted({(span.replica, span.device) for span in spans})
        for before, after in _neighbours(spans, replica=replica, device=device)
        if before.memory_bytes is not None
    ]
    return UpdateCourse(spans=spans, memory=memory)


def _neighbours(
    spans: Sequence[TimedSpan], *, replica: int, device: int
) -> list[tuple[TimedSpan, TimedSpan]]:
    own = [span for span in spans if (span.replica, span.device) == (replica, device)]
    ordered = sorted(own, key=lambda span: span.end_s)
    return list(pairwise(ordered))
