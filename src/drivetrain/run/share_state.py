"""Everything that one replica knows of a training and the others must know too."""

import torch

from drivetrain.cluster.replica_group import ReplicaGroup
from drivetrain.program.training import TrainingProgram


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


def _tensors(program: TrainingProgram) -> list[torch.Tensor]:
    flat = [program.parameters.values, *program.batch_norms.statistics, *program.optimiser.states.values()]
    averages = [] if program.average is None else program.average.averages
    scale = [] if program.loss_scale is None else list(program.loss_scale.states.values())
    trained = {name for name, _ in program.parameters.named_views(program.parameters.values)}
    state = program.model.state_dict()
    others = [value for name, value in state.items() if name not in trained]
    return [*flat, *averages, *scale, *others, *program.records.columns.values()]
