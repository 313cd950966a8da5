"""The one list of all tensors that a training keeps from one update to the next, by part and name.

Checkpoints, restored runs, broadcasts to other ranks and `leaving_no_trace` all use `own_state`, so a new
kind of state has to be added only here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from torch import Tensor

from drivetrain.models.module_values import moving_attributes
from drivetrain.models.modules import unsaved_buffers
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.training_program import TrainingProgram

__all__ = ["OwnState", "own_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """The state of a program on this rank, as views: writing into a tensor changes the training.

    `buffers` are the non-persistent ones, missing in `state_dict()`. `attributes` are other values of modules
    that a pass changes; they are only read here, and numbers are 0-d tensors. `averaged` are the averages of
    the trained weights in full precision, which 16-bit weights lack; the rest of an averaged model is read
    from the model while its `average` is in place. `moving` is all that an update changes, as whole flat
    vectors.
    """

    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    averaged: dict[str, Tensor]
    buffers: dict[str, Tensor]
    attributes: dict[str, Tensor]
    records: dict[str, Tensor]
    average: WeightAverage | None
    moving: tuple[Tensor, ...]

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, with each flat vector as a whole instead of the views into it."""
        # Views share the storage of their vector; `_cdata` identifies a storage, whatever its offset.
        vectors = {tensor.untyped_storage()._cdata for tensor in self.moving}
        named = chain(self.model.values(), self.buffers.values())
        others = (tensor for tensor in named if tensor.untyped_storage()._cdata not in vectors)
        return chain(self.moving, others)


def own_state(program: TrainingProgram) -> OwnState:
    """Everything the next update depends on, and the records; with stages, those of this rank only."""
    moved, records = program.mover, program.records.columns
    states = moved.optimiser.states
    scale = {} if moved.loss_scale is None else moved.loss_scale.states
    averages = [] if moved.average is None else moved.average.averages
    statistics = program.batch_norms.statistics
    vectors = (moved.parameters.values, *statistics, *states.values(), *averages, *scale.values())
    return OwnState(
        model=_model_values(program),
        optimiser=_by_parameter(program, states) | scale,
        averaged=dict(moved.parameters.named_views(averages[0])) if averages else {},
        buffers=_unsaved_buffers(program),
        attributes=_attributes(program),
        records=records,
        average=moved.average,
        moving=(*vectors, *records.values()),
    )


def _model_values(program: TrainingProgram) -> dict[str, Tensor]:
    values: dict[str, Tensor] = program.model.state_dict()
    if program.stages is None or program.groups.devices.size == 1:
        return values
    names = program.stages.state_names
    return {name: value for name, value in values.items() if name in names}


def _unsaved_buffers(program: TrainingProgram) -> dict[str, Tensor]:
    buffers = unsaved_buffers(program.model)
    if program.stages is None:
        return buffers
    names = program.stages.buffer_names
    return {name: buffer for name, buffer in buffers.items() if name in names}


def _attributes(program: TrainingProgram) -> dict[str, Tensor]:
    attributes = moving_attributes(program.model)
    if program.stages is None:
        return attributes
    modules = program.stages.module_names
    return {name: value for name, value in attributes.items() if name.rpartition(".")[0] in modules}


def _by_parameter(program: TrainingProgram, states: dict[str, Tensor]) -> dict[str, Tensor]:
    """Optimiser state of every parameter on this rank, named `state/parameter`."""
    return {
        f"{state}/{name}": view
        for state, vector in states.items()
        for name, view in program.parameters.named_views(vector)
    }
