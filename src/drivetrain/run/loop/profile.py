"""--profile UPDATES: records a timeline of the updates after the first one, which warms up.

The device is synchronised after each recorded action, so timings are exact but recorded updates are slower.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.core.files import write_atomically
from drivetrain.pictures.update.picture import UpdatePicture, draw_update
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.predicted_update import PredictedUpdate, predict_update
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.recorded_timeline import (
    TimedSpan,
    TimelineRecorder,
    chrome_trace,
    measure_steps,
    replay,
)
from drivetrain.schedules.simulator import Simulation
from drivetrain.schedules.update_course import UpdateCourse, measured_course
from drivetrain.store.directory import RunDirectory

__all__ = ["RunProfile", "plan_profile"]

# Hundredths of a percent: enough to compare the measured bubble with the simulated one.
_DIGITS = 4


@dataclass(slots=True, kw_only=True)
class RunProfile:
    """The timeline of a run; `spans` holds those of all ranks once they are gathered.

    If one process plays several devices in turns (`plays_several`), it has no bubble that could be measured;
    only the simulated one is reported, and no prediction is drawn. The first rank draws and has an `outline`;
    `limit_bytes` is the memory of its accelerator.
    """

    recorder: TimelineRecorder
    devices: int
    plays_several: bool
    schedule_of: Callable[[int], Schedule] | None
    edges: tuple[Edge, ...]
    outline: RunOutline | None = None
    limit_bytes: int | None = None
    spans: list[TimedSpan] = field(default_factory=list)

    def finish(self, group: ReplicaGroup, *, directory: RunDirectory, reporter: Reporter) -> None:
        """Gathers the spans of all ranks and writes them; a collective."""
        every = [span for spans in group.gather(self.recorder.spans) for span in spans]
        self.spans = sorted(every, key=lambda span: (span.start_s, span.replica, span.device))
        if group.is_first:
            self._write(directory, reporter=reporter)

    def summary(self) -> dict[str, Any] | None:
        """The `profile` entry of the summary event; None if no update was recorded."""
        if not self.spans:
            return None
        updates = sorted({span.update for span in self.spans})
        times = measure_steps(self.spans, devices=self.devices)
        found: dict[str, Any] = {"first_update": updates[0], "last_update": updates[-1]}
        if not self.plays_several:
            found |= {"bubble": round(times.bubble, _DIGITS), "passes_seconds": times.seconds}
        simulation = self._simulation()
        if simulation is not None:
            found["simulated_bubble"] = round(simulation.bubble, _DIGITS)
            found["simulated_passes_seconds"] = simulation.seconds_per_update
        return found

    def _write(self, directory: RunDirectory, *, reporter: Reporter) -> None:
        """Writes profile.json and profile.png, and prints one line about them."""
        summary = self.summary()
        if summary is None:
            reporter.warn("--profile recorded nothing: the run ended before its second update.")
            return
        trace = chrome_trace(self.spans, facts=summary, memory=self._measured(self.spans).memory)
        write_atomically(directory.path / "profile.json", json.dumps(trace).encode() + b"\n")
        sentence = _sentence(summary)
        picture = UpdatePicture(
            title=f"{directory.path.name}: {sentence}",
            predicted=self._predicted(),
            measured=self._measured(self._last_update()),
            limit_bytes=self.limit_bytes,
        )
        draw_update([directory.path / "profile.png"], picture, with_memory=True)
        reporter.say(f"profile: {sentence}; see profile.png, or open profile.json in ui.perfetto.dev")

    def _measured(self, spans: Sequence[TimedSpan]) -> UpdateCourse:
        """The memory of a process that plays several devices is that of none of them."""
        course = measured_course(spans)
        return replace(course, memory=()) if self.plays_several else course

    def _predicted(self) -> UpdateCourse | None:
        """The predicted update, drawn below the measured one; times by FLOPs are scaled to it."""
        if self.outline is None or self.plays_several:
            return None
        predicted = predict_update(self.outline)
        return _in_seconds(predicted, self._last_update()).course()[1]

    def _simulation(self) -> Simulation | None:
        if self.schedule_of is None:
            return None
        actions = (span.action for span in self.spans if span.action is not None)
        micro_batches = max(action.micro_batch for action in actions) + 1
        return replay(self.spans, self.schedule_of(micro_batches), edges=self.edges)

    def _last_update(self) -> Sequence[TimedSpan]:
        last = max(span.update for span in self.spans)
        return [span for span in self.spans if span.update == last]


def plan_profile(
    program: TrainingProgram,
    updates: int,
    *,
    first: int,
    total: int,
    reporter: Reporter,
    outline: RunOutline | None = None,
) -> RunProfile:
    """Plans to record `updates` updates after `first`; warns if fewer are left before `total`."""
    recorded = range(first + 1, min(first + 1 + updates, total))
    if len(recorded) < updates:
        reporter.warn(
            f"--profile {updates} records updates after the first one, but this run has only "
            f"{len(recorded)}; --max-updates {first + 1 + updates} gives it enough."
        )
    groups, stages = program.groups, program.stages
    devices = 1 if stages is None else stages.plan.devices
    is_one_of_several = groups.devices.size > 1
    recorder = TimelineRecorder(
        recorded,
        replica=groups.replicas.rank,
        devices=[groups.devices.rank] if is_one_of_several else range(devices),
        synchronise=program.device.synchronise,
        memory=lambda: program.device.allocated_memory_bytes,
    )
    return RunProfile(
        recorder=recorder,
        devices=devices,
        plays_several=devices > 1 and not is_one_of_several,
        schedule_of=None if stages is None or devices == 1 else stages.plan.schedule,
        edges=() if stages is None else stages.cut.edges,
        outline=outline,
        limit_bytes=None if program.device.is_cpu else program.device.total_memory_bytes,
    )


def _in_seconds(predicted: PredictedUpdate, spans: Sequence[TimedSpan]) -> PredictedUpdate:
    """Relative times scaled to the measured passes of a micro-batch, on average."""
    if predicted.times.unit == "s":
        return predicted
    passes = [span for span in spans if span.is_pass]
    micro_batches = {(span.replica, span.action.micro_batch) for span in passes if span.action is not None}
    seconds = sum(span.seconds for span in passes) / len(micro_batches)
    times = predicted.times.in_seconds(seconds)
    return replace(predicted, times=times)


def _sentence(summary: dict[str, Any]) -> str:
    first, last = summary["first_update"], summary["last_update"]
    when = f"update {first}" if first == last else f"updates {first} to {last}"
    parts = []
    if "bubble" in summary:
        seconds = f"{summary['passes_seconds']:.3g} s of forward and backward passes each"
        parts.append(f"{summary['bubble']:.1%} in {when}, {seconds}")
    if "simulated_bubble" in summary:
        parts.append(f"{summary['simulated_bubble']:.1%} in a simulation with the measured times")
    return f"bubble {'; '.join(parts)}"
