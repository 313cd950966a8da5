"""What of a training program goes into a checkpoint, and back."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.models.modules import take_over_buffers
from drivetrain.program.training_program import TrainingProgram
from drivetrain.state.program_state import ProgramState, collect_state, take_over
from drivetrain.store.checkpoint import Checkpoint


def copy_sound_state(
    program: TrainingProgram, *, update: int, room: ProgramState | None = None
) -> ProgramState | None:
    """What a checkpoint of a program holds, in host memory of its own; None on all ranks but the first.

    Where stages lie on several ranks, all of them must call this. Weights must be finite. `room` is an
    earlier copy that nobody needs any more.
    """
    whole = collect_state(program, room=room)
    if whole is None:
        return None
    weights = [value for value in whole.model.values() if value.is_floating_point()]
    if not all(bool(torch.isfinite(value).all()) for value in weights):
        raise RunFailedError(
            f"the weights are not finite at update {update}, so no checkpoint of them was written; "
            f"{program.mover.rules.advice_on_overflow}."
        )
    return whole


def stored_state(checkpoint: Checkpoint) -> ProgramState:
    """What a checkpoint holds of a program."""
    return ProgramState(
        model=checkpoint.model,
        optimiser=checkpoint.optimiser,
        averaged=checkpoint.averaged,
        buffers=checkpoint.buffers,
    )


def restore_program(program: TrainingProgram, checkpoint: Checkpoint) -> None:
    """Puts a checkpoint's weights and optimiser state into a program, in place."""
    take_over(program, stored_state(checkpoint), way=_FromCheckpoint(program.model, checkpoint.path))


class _FromCheckpoint:
    """The whole model loads what a checkpoint holds, as torch does it; what does not fit is refused."""

    def __init__(self, model: torch.nn.Module, path: Path) -> None:
        self._model, self._path = model, path

    def model(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        _load_state(self._model, stored, self._path)

    def averaged(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        if stored:
            _copy(own, stored)

    def optimiser(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        if set(own) != set(stored):
            raise BadInputError(f"{self._path} holds another optimiser's state; --overwrite starts afresh.")
        _copy(own, stored)

    def buffers(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        take_over_buffers(self._model, stored)


@torch.no_grad()
def _copy(own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    for name, value in own.items():
        value.copy_(stored[name])


def restore_model(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Puts a checkpoint's weights, averaged ones where it has them, into a model of its architecture."""
    _load_state(model, checkpoint.averaged or checkpoint.model, checkpoint.path)
    take_over_buffers(model, checkpoint.buffers)


def _load_state(model: torch.nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInputError(
            f"{path} does not fit --model: {str(error).splitlines()[-1].strip()} --overwrite starts afresh."
        ) from error
