"""One layout that the search considers, and its update: simulated seconds and memory of each device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drivetrain.pipeline.memory.device_memory import StageNeeds, held_bytes
from drivetrain.planner.replicas import all_reduce_times, overlaps_all_reduce
from drivetrain.planner.search.problem import Problem
from drivetrain.planner.search.segments import Segments
from drivetrain.schedules.actions import Edge, Schedule
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.simulator import Simulation, simulate

__all__ = ["Evaluated", "Layout", "edges_of", "evaluate", "exposed_sum_seconds", "table_of"]

_INPUT = "images"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How an update is computed. `firsts` are the positions of the first layers of stages 1, 2, ..."""

    firsts: tuple[int, ...]
    device_of: tuple[int, ...]
    schedule: str
    replicas: int
    micro: int
    accumulation: int
    group: int
    recomputes: tuple[bool, ...]
    offloads: bool

    @property
    def stages(self) -> int:
        return len(self.device_of)

    @property
    def devices_per_replica(self) -> int:
        return max(self.device_of) + 1

    @property
    def devices(self) -> int:
        return self.replicas * self.devices_per_replica

    def table(self) -> Schedule:
        """The order of the passes."""
        return table_of(self.schedule, self.accumulation, self.device_of)


@lru_cache(maxsize=256)
def table_of(name: str, micro_batches: int, device_of: tuple[int, ...]) -> Schedule:
    """The table of a schedule; each is built once."""
    return build_schedule(name, micro_batches=micro_batches, device_of=device_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A layout with the seconds of its update, the share of it in which devices idle, and their memory."""

    layout: Layout
    seconds: float
    bubble: float
    peak_bytes: tuple[int, ...]

    @property
    def largest_bytes(self) -> int:
        return max(self.peak_bytes)


def edges_of(
    problem: Problem, *, firsts: Sequence[int], micro: int
) -> tuple[tuple[Edge, ...], dict[str, int]]:
    """The values between the stages of a cut, each once per consuming stage, and their bytes."""
    stage_of = [0] * len(problem.layers)
    for first in firsts:
        for place in range(first, len(problem.layers)):
            stage_of[place] += 1
    edges: list[Edge] = []
    bytes_of = {_INPUT: _scaled(problem, problem.input_bytes, micro)}
    for value in sorted(problem.values, key=lambda value: value.producer):
        home = stage_of[value.producer]
        readers = sorted({stage_of[consumer] for consumer in value.consumers} - {home})
        edges += [Edge(value.name, home, reader, value.has_gradient) for reader in readers]
        if readers:
            bytes_of[value.name] = _scaled(problem, value.size_bytes, micro)
    return tuple(edges), bytes_of


def _scaled(problem: Problem, size: float, micro: int) -> int:
    return round(size * micro / problem.micro_batch_size)


def evaluate(problem: Problem, segments: Segments, layout: Layout, *, memory: bool = True) -> Evaluated:
    """Simulates an update of a layout; `segments` must be those of its micro-batch size.

    Without `memory`, the memory of devices is left out, which is faster.
    """
    edges, bytes_of = edges_of(problem, firsts=layout.firsts, micro=layout.micro)
    simulated = _simulated(problem, segments, layout, edges, bytes_of)
    gradients, states = (
        _by_device(segments, layout, table) for table in (segments.gradient_bytes, segments.state_bytes)
    )
    in_one_piece = layout.stages == 1 and not any(layout.recomputes)
    summed_s = exposed_sum_seconds(
        problem,
        replicas=layout.replicas,
        devices_per_replica=layout.devices_per_replica,
        size=max(gradients),
        backward_s=float(segments.backward_s[0, -1]) if in_one_piece else 0.0,
    )
    # Offloaded states come from the host and go back.
    offload_s = 2 * max(states) / problem.host_bytes_per_s if layout.offloads else 0.0
    seconds = simulated.seconds_per_update + summed_s + offload_s + problem.update_s
    return Evaluated(
        layout=layout,
        seconds=seconds,
        bubble=max(0.0, simulated.bubble),
        peak_bytes=_peaks(problem, segments, layout, edges, bytes_of) if memory else (),
    )


def _peaks(
    problem: Problem,
    segments: Segments,
    layout: Layout,
    edges: Sequence[Edge],
    bytes_of: dict[str, int],
) -> tuple[int, ...]:
    moments = held_bytes(
        layout.table(),
        edges=edges,
        needs=[_needs(segments, layout, stage, edges, bytes_of) for stage in range(layout.stages)],
        bytes_of=bytes_of,
    )
    tables = [segments.weight_bytes, segments.gradient_bytes]
    tables += [] if layout.offloads else [segments.state_bytes]
    lasting = [_by_device(segments, layout, table) for table in tables]
    peaks = [round(sum(own) + moment.total) for *own, moment in zip(*lasting, moments, strict=True)]
    return tuple(peak + problem.extra_bytes(device) for device, peak in enumerate(peaks))


def _by_device(segments: Segments, layout: Layout, table: NDArray[np.float64]) -> list[float]:
    held = [0.0] * layout.devices_per_replica
    for home, place in zip(layout.device_of, _places(segments, layout), strict=True):
        held[home] += float(table[place])
    return held


def exposed_sum_seconds(
    problem: Problem, *, replicas: int, devices_per_replica: int, size: float, backward_s: float
) -> float:
    """How long an update waits for the all-reduce; a model in one piece sums during its last `backward_s`."""
    if replicas == 1:
        return 0.0
    _, exposed_s = all_reduce_times(
        size,
        replicas=replicas,
        link=problem.links.slowest(replicas * devices_per_replica),
        buffer_bytes=problem.buffer_bytes,
        hidden_by_s=backward_s if overlaps_all_reduce(size, is_cpu=problem.on_cpu) else 0.0,
    )
    return exposed_s


def _places(segments: Segments, layout: Layout) -> list[tuple[int, int]]:
    """The bounds of each stage, as indices into the tables."""
    index = {bound: place for place, bound in enumerate(segments.bounds)}
    ends = [0, *(index[first] for first in layout.firsts), len(segments.bounds) - 1]
    return list(pairwise(ends))


def _simulated(
    problem: Problem,
    segments: Segments,
    layout: Layout,
    edges: Sequence[Edge],
    bytes_of: dict[str, int],
) -> Simulation:
    places = _places(segments, layout)
    link = problem.stage_link(layout.devices_per_replica)
    forward = [float(segments.forward_s[place]) for place in places]
    backward = [float(segments.backward_s[place]) for place in places]
    again = [there if twice else 0.0 for there, twice in zip(forward, layout.recomputes, strict=True)]
    return simulate(
        layout.table(),
        forward_s=forward,
        backward_s=[back + more for back, more in zip(backward, again, strict=True)],
        edges=edges,
        latency_s=link.latency_s,
        bytes_of=bytes_of,
        bytes_per_s=link.bytes_per_s,
    )


def _needs(
    segments: Segments, layout: Layout, stage: int, edges: Sequence[Edge], bytes_of: dict[str, int]
) -> StageNeeds:
    place = _places(segments, layout)[stage]
    received = {edge.value: bytes_of[edge.value] for edge in edges if edge.consumer == stage}
    own = {_INPUT: bytes_of[_INPUT]} if stage == 0 else {}
    saved = round(float(segments.saved_bytes[place]))
    working = round(float(segments.working_bytes[place]))
    return StageNeeds(
        inputs={**own, **received},
        kept_outputs={},
        saved=saved,
        forward=saved + working // 2,
        working=working,
        deferred=saved if layout.schedule == "zero-bubble" else 0,
        gradients=sum(bytes_of[edge.value] for edge in edges if edge.producer == stage and edge.has_gradient),
        recomputes=layout.recomputes[stage],
    )
