"""The times of an estimate as those of the passes that a picture shows."""

from dataclasses import replace

from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.plan.predicted_update import passes_by_flops
from drivetrain.planner.estimate import UpdateEstimate
from drivetrain.recipe.layout import batch_of
from drivetrain.schedules.pass_times import PassTimes

__all__ = ["estimated_passes"]


def estimated_passes(outline: RunOutline, estimate: UpdateEstimate) -> PassTimes | None:
    """Seconds of the passes in each stage; None where an update's time is not known.

    Where only whole micro-batches are known, their parts take time in proportion to their FLOPs.
    """
    if estimate.passes_s is None or estimate.source is None:
        return None
    stages, link, sharing = estimate.stages, estimate.link, estimate.target.sharing
    if stages is None:
        micro_batch_s = estimate.passes_s / batch_of(outline.recipe).accumulation
        relative = passes_by_flops(outline).in_seconds(micro_batch_s)
        return replace(relative, update=estimate.rest_s, source=estimate.source)
    return PassTimes(
        forward=tuple(sharing * each for each in stages.forward_s),
        backward=tuple(sharing * each for each in stages.backward_s),
        update=estimate.rest_s,
        unit="s",
        source=estimate.source,
        bytes_per_s=None if link is None else link.bytes_per_s / sharing,
        latency_s=0.0 if link is None else link.latency_s * sharing,
    )
