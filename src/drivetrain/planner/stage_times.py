"""The times of a pipeline: each stage, the idle share, and the stage that all others wait for."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.plan.stage_report import RunMemory
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.costs import Link
from drivetrain.planner.devices.links import Links
from drivetrain.planner.update_times import UpdateTimes
from drivetrain.schedules.simulator import simulate

__all__ = ["StageTimes", "seconds_by_stage", "stage_times"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of a micro-batch in each stage, and the passes of a whole update as simulated.

    `bottleneck` is the stage that computes longest, of those on the busiest device.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    passes_s: float
    bubble: float
    bottleneck: int


def stage_times(planned: PlannedRun, memory: RunMemory, *, times: UpdateTimes, links: Links) -> StageTimes:
    """Simulates the schedule of a run with the times of its layers and of the messages between stages."""
    plan = planned.outline.plan
    assert plan is not None, "a model in stages"
    forward, backward = seconds_by_stage(times, stage_of=plan.stage_of, stages=plan.stages)
    recomputed = [
        back + (ahead if setting.recomputes else 0.0)
        for ahead, back, setting in zip(forward, backward, plan.settings, strict=True)
    ]
    link = _link(links, devices=plan.devices)
    values = {name: info.num_bytes for name, info in plan.shapes.values.items()}
    found = simulate(
        plan.schedule(),
        edges=plan.cut().edges,
        forward_s=forward,
        backward_s=recomputed,
        bytes_of=values if memory.prediction is None else memory.prediction.bytes_of,
        bytes_per_s=link.bytes_per_s,
        latency_s=link.latency_s,
    )
    busiest = max(range(plan.devices), key=lambda device: found.busy_s[device])
    on_it = plan.stages_on(busiest)
    return StageTimes(
        forward_s=tuple(forward),
        backward_s=tuple(recomputed),
        passes_s=found.seconds_per_update,
        bubble=found.bubble,
        bottleneck=max(on_it, key=lambda stage: forward[stage] + recomputed[stage]),
    )


def _link(links: Links, *, devices: int) -> Link:
    """The slowest link between two devices of a replica, which are neighbours."""
    return links.slowest(devices)


def seconds_by_stage(
    times: UpdateTimes, *, stage_of: Sequence[int], stages: int
) -> tuple[list[float], list[float]]:
    """Forward and backward seconds of each stage, from those of its layers."""
    assert times.layers is not None
    forward, backward = [0.0] * stages, [0.0] * stages
    for stage, layer in zip(stage_of, times.layers.layers, strict=True):
        forward[stage] += layer.forward_s
        backward[stage] += layer.backward_s
    return forward, backward
