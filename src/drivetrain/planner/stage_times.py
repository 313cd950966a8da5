"""The times of the stages of a run, from the times of its model's layers."""

from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.planner.costs import ModelTimes
from drivetrain.schedules.stage_times import StageTimes

__all__ = ["times_of_stages"]


def times_of_stages(times: ModelTimes, outline: RunOutline) -> StageTimes:
    """The seconds of each stage; a stage that recomputes runs its forward pass twice."""
    if outline.plan is None:
        again, stage_of, stages = [False], [0] * len(times.layers), 1
    else:
        again = [each.recomputes for each in outline.plan.settings]
        stage_of, stages = list(outline.plan.cut().stage_of), outline.plan.stages
    forward, backward = [0.0] * stages, [0.0] * stages
    for stage, layer in zip(stage_of, times.layers, strict=True):
        forward[stage] += layer.forward_s
        backward[stage] += layer.backward_s + (layer.forward_s if again[stage] else 0.0)
    return StageTimes(
        forward=tuple(forward),
        backward=tuple(backward),
        update=times.update_s,
        unit="s",
        source=times.source,
    )
