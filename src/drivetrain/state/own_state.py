"""What a training keeps from one update to the next, written down once: every tensor, by part and name.

Checkpoints, restored runs, other ranks and whoever puts a training back as it was go through `own_state`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from torch import Tensor

from drivetrain.models.modules import unsaved_buffers
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.training_program import TrainingProgram

__all__ = ["OwnState", "own_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """The state of a program as it lies on this rank: whoever writes into it changes the training.

    `buffers` are those that the model itself does not save, `averaged` the averages of trained weights. They
    have all their bits, which 16-bit weights have not; the rest of an averaged model is that of a model that
    has its `average` in place. `moving` is what every update moves, as whole vectors.
    """

    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    averaged: dict[str, Tensor]
    buffers: dict[str, Tensor]
    records: dict[str, Tensor]
    average: WeightAverage | None
    moving: tuple[Tensor, ...]

    def tensors(self) -> Iterator[Tensor]:
        """Everything, each vector as a whole instead of the tensors that lie in it."""
        vectors = {tensor.untyped_storage()._cdata for tensor in self.moving}
        named = chain(self.model.values(), self.buffers.values())
        others = (tensor for tensor in named if tensor.untyped_storage()._cdata not in vectors)
        return chain(self.moving, others)


def own_state(program: TrainingProgram) -> OwnState:
    """All that a program's next update depends on, and its records; of a cut model this rank's stages."""
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
        buffers=_unsaved_values(program),
        records=records,
        average=moved.average,
        moving=(*vectors, *records.values()),
    )


def _model_values(program: TrainingProgram) -> dict[str, Tensor]:
    values: dict[str, Tensor] = program.model.state_dict()
    if program.stages is None:
        return values
    names = program.stages.state_names
    return {name: value for name, value in values.items() if name in names}


def _unsaved_values(program: TrainingProgram) -> dict[str, Tensor]:
    buffers = unsaved_buffers(program.model)
    if program.stages is None:
        return buffers
    names = program.stages.buffer_names
    return {name: buffer for name, buffer in buffers.items() if name in names}


def _by_parameter(program: TrainingProgram, states: dict[str, Tensor]) -> dict[str, Tensor]:
    """The optimiser's state of every parameter here, by `state/parameter`."""
    return {
        f"{state}/{name}": view
        for state, vector in states.items()
        for name, view in program.parameters.named_views(vector)
    }
