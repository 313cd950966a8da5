"""Weights of stages that other ranks run: their memory is given up while the training goes on.

A rank builds the whole model, so that its stages are those of all others. Shapes and names stay.
"""

from collections.abc import Iterator
from itertools import chain

from torch import nn

from drivetrain.program.training import TrainingProgram

__all__ = ["bring_back", "let_go"]


def let_go(program: TrainingProgram) -> None:
    """Frees the weights that are trained elsewhere; nobody may read them until `bring_back`."""
    for weight in _foreign(program):
        weight.untyped_storage().resize_(0)


def bring_back(program: TrainingProgram) -> None:
    """Gives them memory again, for values to come."""
    for weight in _foreign(program):
        if not weight.untyped_storage().nbytes():
            weight.untyped_storage().resize_(_extent_bytes(weight))


def _foreign(program: TrainingProgram) -> Iterator[nn.Parameter]:
    """Weights of which nothing that lives here shares the memory."""
    if program.stages is None or program.groups.devices.size == 1:
        return
    own_names = program.stages.parameter_names
    named = list(program.model.named_parameters(remove_duplicate=False))
    own = {id(weight) for name, weight in named if name in own_names}
    kept = chain((weight for _, weight in named if id(weight) in own), program.model.buffers())
    held = {tensor.untyped_storage()._cdata for tensor in kept}
    for _, weight in program.model.named_parameters():
        if id(weight) not in own and weight.untyped_storage()._cdata not in held:
            yield weight


def _extent_bytes(weight: nn.Parameter) -> int:
    """The memory from a tensor's storage's beginning to its last element."""
    steps = zip(weight.shape, weight.stride(), strict=True)
    last = int(weight.storage_offset()) + sum((size - 1) * stride for size, stride in steps)
    return (last + 1) * weight.itemsize if weight.numel() else 0
