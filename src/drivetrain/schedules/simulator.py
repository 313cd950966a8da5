"""Simulates a schedule without running it: seconds per update, idle share and timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drivetrain.schedules.actions import (
    Action,
    Dependencies,
    Edge,
    Kind,
    Schedule,
    ScheduleError,
    chain,
    outcome,
    walk,
)
from drivetrain.schedules.checker import live_micro_batches
from drivetrain.schedules.traffic import Message, messages

__all__ = ["COST_RULE", "Simulation", "Span", "backward_costs", "simulate"]

COST_RULE = (
    "forward passes take time in proportion to their FLOPs, backward passes twice as long, three times with "
    "recomputation, messages no time"
)


class Span(NamedTuple):
    """One action of a device, with its start and end within the update."""

    device: int
    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The time of a schedule; `live` is the largest number of live micro-batches of each stage."""

    seconds_per_update: float
    busy_s: tuple[float, ...]
    timeline: tuple[Span, ...]
    live: tuple[int, ...]

    @property
    def bubble(self) -> float:
        """The share of the update in which devices are idle."""
        available_s = len(self.busy_s) * self.seconds_per_update
        return 1 - sum(self.busy_s) / available_s if available_s else 0.0


def simulate(
    schedule: Schedule,
    *,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    edges: Sequence[Edge] | None = None,
    weight_share: Sequence[float] | None = None,
    latency_s: float = 0.0,
    bytes_of: Mapping[str, int] | None = None,
    bytes_per_s: float | None = None,
) -> Simulation:
    """Simulates one update from the seconds that each stage needs for one micro-batch.

    `weight_share` is the share of WEIGHT in the backward pass of each stage, one half by default; the rest is
    INPUT. Messages between two devices are sent one after the other at `bytes_per_s`, and each arrives after
    `latency_s`; devices compute meanwhile. Without `edges` every stage feeds the next.
    """
    if (bytes_of is None) != (bytes_per_s is None):
        raise ValueError("bytes_of and bytes_per_s must be given together.")
    clock = _Clock(
        schedule,
        edges=chain(schedule.stages) if edges is None else edges,
        seconds=_seconds(forward_s, backward_s, weight_share or [0.5] * schedule.stages),
        post=_Post(latency_s=latency_s, bytes_of=bytes_of or {}, bytes_per_s=bytes_per_s),
    )
    return clock.run()


def _seconds(
    forward_s: Sequence[float], backward_s: Sequence[float], weight_share: Sequence[float]
) -> dict[Kind, list[float]]:
    return {
        Kind.FORWARD: list(forward_s),
        Kind.BACKWARD: list(backward_s),
        Kind.INPUT: [whole * (1 - share) for whole, share in zip(backward_s, weight_share, strict=True)],
        Kind.WEIGHT: [whole * share for whole, share in zip(backward_s, weight_share, strict=True)],
    }


class _Post:
    """Works out when messages arrive; every directed pair of devices has a link of its own."""

    def __init__(self, *, latency_s: float, bytes_of: Mapping[str, int], bytes_per_s: float | None) -> None:
        self._latency_s = latency_s
        self._bytes_of = bytes_of
        self._bytes_per_s = bytes_per_s
        self._line_free_s: dict[tuple[int, int], float] = {}
        self.arrival_s: dict[Message, float] = {}

    def send(self, message: Message, *, at_s: float) -> None:
        line = (message.from_device, message.to_device)
        left_s = max(at_s, self._line_free_s.get(line, 0.0)) + self._line_seconds(message)
        self._line_free_s[line] = left_s
        self.arrival_s[message] = left_s + self._latency_s

    def _line_seconds(self, message: Message) -> float:
        return self._bytes_of[message.value] / self._bytes_per_s if self._bytes_per_s else 0.0


class _Clock:
    """The state of one simulated update."""

    def __init__(
        self, schedule: Schedule, *, edges: Sequence[Edge], seconds: dict[Kind, list[float]], post: _Post
    ) -> None:
        self._schedule = schedule
        self._dependencies = Dependencies(edges, stages=schedule.stages)
        self._traffic = messages(schedule, edges)
        self._seconds = seconds
        self._post = post
        self._done: set[Action] = set()
        self._free_s = [0.0] * schedule.devices
        self._busy_s = [0.0] * schedule.devices
        self._timeline: list[Span] = []

    def run(self) -> Simulation:
        reached = walk(self._schedule, is_ready=self._is_ready, perform=self._perform)
        for device, row in enumerate(self._schedule.table):
            if reached[device] < len(row):
                raise ScheduleError(f"Device {device} waits forever at {row[reached[device]]}.")
        return Simulation(
            seconds_per_update=max(self._free_s),
            busy_s=tuple(self._busy_s),
            timeline=tuple(sorted(self._timeline, key=lambda span: (span.start_s, span.device, span.end_s))),
            live=live_micro_batches(self._schedule),
        )

    def _is_ready(self, device: int, index: int) -> bool:
        return self._done.issuperset(self._dependencies.needs(self._schedule.table[device][index]))

    def _perform(self, device: int, index: int) -> None:
        action = self._schedule.table[device][index]
        arrivals_s = [self._post.arrival_s[message] for message in self._traffic.before(device, index)]
        start_s = max([self._free_s[device], *arrivals_s])
        duration_s = self._seconds[action.kind][action.stage]
        self._free_s[device] = start_s + duration_s
        self._busy_s[device] += duration_s
        self._done.add(outcome(action))
        self._timeline.append(Span(device, action, start_s, self._free_s[device]))
        for message in self._traffic.after(device, index):
            self._post.send(message, at_s=self._free_s[device])


def backward_costs(forward: Sequence[int], *, recomputes: Sequence[bool]) -> list[int]:
    """Estimates backward passes: twice the forward cost (inputs, weights), three times with recomputation."""
    return [(3 if again else 2) * cost for cost, again in zip(forward, recomputes, strict=True)]
