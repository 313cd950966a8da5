"""Timelines of real updates: recorded per rank, measured, replayed and written as a Chrome trace."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from drivetrain.schedules.actions import Action, Edge, Kind, Schedule
from drivetrain.schedules.observer import Part
from drivetrain.schedules.simulator import Simulation, simulate

__all__ = [
    "WAIT",
    "MemoryStep",
    "StepTimes",
    "TimedSpan",
    "TimelineRecorder",
    "chrome_trace",
    "measure_steps",
    "replay",
]

WAIT = "wait"
# Chrome traces count in microseconds.
_MICROSECONDS = 1e6


class TimedSpan(NamedTuple):
    """What a device did in an update, and when, as wall-clock time.

    The gradient all-reduce and the optimiser update belong to no action. `memory_bytes` is what the process
    held on its accelerator at the end; None on a CPU.
    """

    replica: int
    device: int
    update: int
    what: str
    action: Action | None
    start_s: float
    end_s: float
    memory_bytes: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s

    @property
    def is_busy(self) -> bool:
        """Whether this is computation of a forward or backward pass, not waiting."""
        return self.action is not None and self.what != WAIT

    @property
    def is_pass(self) -> bool:
        """Whether this is a forward or backward pass itself, without its data and messages."""
        return self.action is not None and self.what == self.action.kind.name.lower()


class MemoryStep(NamedTuple):
    """The bytes that a device holds from one time to another."""

    replica: int
    device: int
    start_s: float
    end_s: float
    held_bytes: int


class TimelineRecorder:
    """Records the timeline of one rank during the given `updates`.

    `devices` are the pipeline devices that the rank runs. `synchronise` waits for the accelerator. It is
    called after each action: timings are exact, but the recorded updates are slower. `memory` counts the
    bytes that are allocated on the accelerator.
    """

    def __init__(
        self,
        updates: range,
        *,
        replica: int,
        devices: Sequence[int],
        synchronise: Callable[[], None],
        memory: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.updates = updates
        self.spans: list[TimedSpan] = []
        self._replica, self._devices, self._synchronise = replica, devices, synchronise
        self._memory = memory
        # The zero of perf_counter is arbitrary on each host; only wall-clock times compare between ranks.
        self._wall_offset_s = time.time() - time.perf_counter()
        self._update: int | None = None

    @property
    def sees_ends(self) -> bool:
        return self._update is not None

    def begins(self, device: int, action: Action) -> None:
        """Does nothing: the device was synchronised at the end of the previous action."""

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        self._add(device, what, action, start_s=start_s)

    def part_begins(self, update: int, part: Part) -> None:
        self._update = update if update in self.updates else None
        if self._update is not None and part is Part.PASSES:
            self._synchronise()

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:  # noqa: ARG002
        if self._update is not None and part is not Part.PASSES:
            for device in self._devices:
                self._add(device, part.value, None, start_s=start_s)

    def _add(self, device: int, what: str, action: Action | None, *, start_s: float) -> None:
        assert self._update is not None
        self._synchronise()
        end_s = time.perf_counter()
        wall_s = (start_s + self._wall_offset_s, end_s + self._wall_offset_s)
        held_bytes = self._memory()
        self.spans.append(TimedSpan(self._replica, device, self._update, what, action, *wall_s, held_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The mean time of the passes of an update, from first to last action, and the idle share."""

    seconds: float
    bubble: float


def measure_steps(spans: Iterable[TimedSpan], *, devices: int) -> StepTimes:
    """Measures the passes: their mean length, and the share of it in which devices were idle."""
    steps = _by(spans, lambda span: (span.replica, span.update))
    lengths_s = [max(span.end_s for span in step) - min(span.start_s for span in step) for step in steps]
    busy_s = [sum(span.seconds for span in step) for step in steps]
    shares = [1 - busy / (devices * length) for busy, length in zip(busy_s, lengths_s, strict=True)]
    return StepTimes(seconds=fmean(lengths_s), bubble=fmean(shares))


def replay(spans: Iterable[TimedSpan], schedule: Schedule, *, edges: Sequence[Edge]) -> Simulation:
    """Simulates the schedule with the mean recorded time of each stage."""
    spent_s: dict[tuple[Kind, int], float] = defaultdict(float)
    actions: dict[tuple[Kind, int], set[tuple[int, int, int]]] = defaultdict(set)
    for span in spans:
        if span.action is not None and span.is_busy:
            key = (span.action.kind, span.action.stage)
            spent_s[key] += span.seconds
            actions[key].add((span.replica, span.update, span.action.micro_batch))
    mean_s = {key: seconds / len(actions[key]) for key, seconds in spent_s.items()}
    input_s, weight_s, whole_s, forward_s = (
        [mean_s.get((kind, stage), 0.0) for stage in range(schedule.stages)]
        for kind in (Kind.INPUT, Kind.WEIGHT, Kind.BACKWARD, Kind.FORWARD)
    )
    backward_s = [sum(parts) for parts in zip(input_s, weight_s, whole_s, strict=True)]
    return simulate(
        schedule,
        forward_s=forward_s,
        backward_s=backward_s,
        edges=edges,
        weight_share=[part / (all_s or 1.0) for part, all_s in zip(weight_s, backward_s, strict=True)],
    )


def chrome_trace(
    spans: Sequence[TimedSpan], *, facts: Mapping[str, Any], memory: Sequence[MemoryStep] = ()
) -> dict[str, Any]:
    """A trace for chrome://tracing and ui.perfetto.dev: a process per replica, a row per device.

    Memory is a counter per device.
    """
    begin_s = min((span.start_s for span in spans), default=0.0)
    rows = sorted({(span.replica, span.device) for span in spans})
    names = [_name("process_name", replica, 0, f"replica {replica}") for replica in {row[0] for row in rows}]
    names += [_name("thread_name", replica, device, f"device {device}") for replica, device in rows]
    return {
        "displayTimeUnit": "ms",
        "otherData": dict(facts),
        "traceEvents": [
            *names,
            *(_event(span, begin_s=begin_s) for span in spans),
            *(_counter(step, begin_s=begin_s) for step in memory),
        ],
    }


def _name(kind: str, replica: int, device: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": replica, "tid": device, "args": {"name": text}}


def _event(span: TimedSpan, *, begin_s: float) -> dict[str, Any]:
    args: dict[str, Any] = {"update": span.update}
    name = span.what
    if span.action is not None:
        args |= {"stage": span.action.stage, "micro_batch": span.action.micro_batch}
        name = f"{span.what} {span.action}"
    if span.memory_bytes is not None:
        args["memory_bytes"] = span.memory_bytes
    return {
        "ph": "X",
        "name": name,
        "cat": span.what,
        "pid": span.replica,
        "tid": span.device,
        "ts": round((span.start_s - begin_s) * _MICROSECONDS, 1),
        "dur": round(span.seconds * _MICROSECONDS, 1),
        "args": args,
    }


def _counter(step: MemoryStep, *, begin_s: float) -> dict[str, Any]:
    return {
        "ph": "C",
        "name": f"memory of device {step.device}",
        "pid": step.replica,
        "ts": round((step.start_s - begin_s) * _MICROSECONDS, 1),
        "args": {"bytes": step.held_bytes},
    }


def _by(spans: Iterable[TimedSpan], key: Callable[[TimedSpan], tuple[int, int]]) -> list[list[TimedSpan]]:
    """Groups the spans of forward and backward passes by key."""
    groups: dict[tuple[int, int], list[TimedSpan]] = defaultdict(list)
    for span in spans:
        if span.is_busy:
            groups[key(span)].append(span)
    return list(groups.values())
