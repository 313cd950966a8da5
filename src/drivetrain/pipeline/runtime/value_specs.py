"""What the values between stages look like, found by one pass of zeros that leaves no trace."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from drivetrain.models.modules import in_mode
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.rank_channel import ValueSpec
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.schedules.actions import Edge

__all__ = ["find_specs"]


def find_specs(
    plan: StagePlan,
    runners: Mapping[int, StageRunner],
    *,
    edges: Sequence[Edge],
    images: Tensor,
    devices: ReplicaGroup,
) -> dict[str, ValueSpec]:
    """Shape and type of every value that leaves a stage, the output too; all ranks of a replica take part.

    Each stage runs once, in its own precision, on the device it will run on.
    """
    specs: dict[str, ValueSpec] = {}
    for stage, home in enumerate(plan.device_of):
        found = None
        if stage in runners:
            inputs = {
                edge.value: _zeros(specs[edge.value], images) for edge in edges if edge.consumer == stage
            }
            # In evaluation, so that no statistic moves.
            with in_mode(runners[stage].module, training=False):
                outputs = runners[stage].evaluate(images, inputs)
            found = {name: ValueSpec(tuple(value.shape), value.dtype) for name, value in outputs.items()}
        specs |= devices.gather(found)[home if devices.size > 1 else 0]
    return specs


def _zeros(spec: ValueSpec, like: Tensor) -> Tensor:
    zeros = torch.zeros(spec.shape, dtype=spec.dtype, device=like.device)
    return zeros.contiguous(memory_format=torch.channels_last) if zeros.dim() == 4 else zeros
