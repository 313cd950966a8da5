"""Everything that one replica knows of a training and the others must know too."""

import torch
from torch import Tensor

from drivetrain.models.unsaved_buffers import unsaved_buffers
from drivetrain.program.training import TrainingProgram
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["own_buffers", "own_values", "share_program"]


@torch.no_grad()
def share_program(program: TrainingProgram, group: ReplicaGroup) -> None:
    """All replicas get the first one's weights, statistics, optimiser state and records, bit for bit."""
    if group.size == 1:
        return
    for tensor in _tensors(program):
        if tensor.is_contiguous():
            group.broadcast_(tensor)
        else:
            whole = tensor.contiguous()
            group.broadcast_(whole)
            tensor.copy_(whole)


def own_values(program: TrainingProgram) -> dict[str, Tensor]:
    """What of the model's state lives on this rank, as it lies there."""
    values: dict[str, Tensor] = program.model.state_dict()
    if program.stages is None:
        return values
    names = program.stages.state_names
    return {name: value for name, value in values.items() if name in names}


def own_buffers(program: TrainingProgram) -> dict[str, Tensor]:
    """The buffers on this rank that the model does not save."""
    buffers = unsaved_buffers(program.model)
    if program.stages is None:
        return buffers
    names = program.stages.buffer_names
    return {name: buffer for name, buffer in buffers.items() if name in names}


def _tensors(program: TrainingProgram) -> list[Tensor]:
    flat = [program.parameters.values, *program.batch_norms.statistics, *program.optimiser.states.values()]
    averages = [] if program.average is None else program.average.averages
    scale = [] if program.loss_scale is None else list(program.loss_scale.states.values())
    trained = {name for name, _ in program.parameters.named_views(program.parameters.values)}
    others = [value for name, value in own_values(program).items() if name not in trained]
    buffers = own_buffers(program).values()
    return [*flat, *averages, *scale, *others, *buffers, *program.records.columns.values()]
