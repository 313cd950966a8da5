"""An update before it runs: when each device does what, and how much memory it holds meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from drivetrain.pipeline.memory.device_memory import DeviceCourse
from drivetrain.pipeline.memory.memory_parts import run_schedule
from drivetrain.pipeline.memory.memory_prediction import MemoryPrediction
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.stage_report import checkpoint_copies, memory_of_run, stage_flops
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.pass_times import PassTimes, times_by_flops
from drivetrain.schedules.recorded_timeline import MemoryStep, TimedSpan
from drivetrain.schedules.simulator import Simulation
from drivetrain.schedules.update_course import UpdateCourse, simulated_course

__all__ = ["PredictedUpdate", "passes_by_flops", "predict_update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedUpdate:
    """The schedule of an update with the times of its stages, and the memory of its devices.

    `edges` are the values sent between stages, and `bytes_of` their sizes.
    `memory` is empty if it cannot be predicted; `problem` then says why.
    """

    schedule: Schedule
    edges: tuple[Edge, ...]
    bytes_of: Mapping[str, int]
    times: PassTimes
    memory: tuple[DeviceCourse, ...] = ()
    problem: str | None = None

    @property
    def peaks(self) -> dict[int, int]:
        """The peak memory of every device."""
        return {device: course.peak for device, course in enumerate(self.memory)}

    def course(self) -> tuple[Simulation, UpdateCourse]:
        """The simulated update, with the memory over its course."""
        found, course = simulated_course(
            self.schedule, edges=self.edges, times=self.times, bytes_of=self.bytes_of
        )
        passes_end = found.seconds_per_update
        end = passes_end + self.times.update
        steps = [
            step
            for device, memory in enumerate(self.memory)
            for step in _steps(device, memory, course.spans, passes_end=passes_end, end=end)
        ]
        lasting = {device: memory.lasting for device, memory in enumerate(self.memory)}
        return found, replace(course, memory=steps, lasting_bytes=lasting)


def predict_update(
    outline: RunOutline, *, times: PassTimes | None = None, memory: MemoryPrediction | None = None
) -> PredictedUpdate:
    """Predicts an update of a run; without `times`, passes take time in proportion to their FLOPs.

    `memory` is given if it is predicted already.
    """
    plan = outline.plan
    update = PredictedUpdate(
        schedule=run_schedule(outline),
        edges=() if plan is None else plan.edges(),
        bytes_of={} if plan is None else {name: info.num_bytes for name, info in plan.shapes.values.items()},
        times=times or passes_by_flops(outline),
    )
    known = memory
    if known is None:
        found = memory_of_run(outline)
        if found.prediction is None:
            return replace(update, problem=f"The memory cannot be predicted: {found.failure}")
        known = found.prediction
    courses = zip(known.courses, checkpoint_copies(known, outline.recipe), strict=True)
    return replace(
        update,
        bytes_of=known.bytes_of,
        memory=tuple(replace(course, lasting=course.lasting + copy) for course, copy in courses),
    )


def passes_by_flops(outline: RunOutline) -> PassTimes:
    """Times of the stages, or of a model in one piece, in proportion to their FLOPs."""
    if outline.plan is None:
        return times_by_flops([1], recomputes=[False])
    flops = stage_flops(outline.plan, outline.plan.cut())
    return times_by_flops(flops, recomputes=[each.recomputes for each in outline.plan.settings])


def _steps(
    device: int, memory: DeviceCourse, spans: Sequence[TimedSpan], *, passes_end: float, end: float
) -> Iterator[MemoryStep]:
    """The memory before, during and after each action, then that of the optimiser's step."""
    times = {span.action: span for span in spans if span.device == device}
    yield MemoryStep(0, device, 0.0, times[memory.actions[0].action].start_s, memory.lasting)
    starts = [times[each.action].start_s for each in memory.actions[1:]]
    for each, until in zip(memory.actions, [*starts, passes_end], strict=True):
        span = times[each.action]
        yield MemoryStep(0, device, span.start_s, span.end_s, memory.lasting + each.most)
        if until > span.end_s:
            yield MemoryStep(0, device, span.end_s, until, memory.lasting + each.after)
    yield MemoryStep(0, device, passes_end, end, memory.lasting + memory.update)
