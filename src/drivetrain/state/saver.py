"""Copies the state of a program for a checkpoint, and restores a program or a model from one."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.models.kept_values import give_own_memory
from drivetrain.models.modules import take_over_unsaved
from drivetrain.program.training_program import TrainingProgram
from drivetrain.state.program_state import ProgramState, collect_state, take_over
from drivetrain.store.checkpoint import Checkpoint


def copy_sound_state(
    program: TrainingProgram, *, update: int, room: ProgramState | None = None
) -> ProgramState | None:
    """A copy of the state in host memory for a checkpoint; None on all ranks but the first.

    A collective with stages. Refuses weights that are not finite. `room` is an earlier copy to overwrite.
    """
    whole = collect_state(program, room=room)
    if whole is None:
        return None
    weights = [value for value in whole.model.values() if value.is_floating_point()]
    if not all(bool(torch.isfinite(value).all()) for value in weights):
        raise RunFailedError(
            f"the weights are not finite after update {update}, so no checkpoint was written; "
            f"{program.mover.rules.advice_on_overflow}."
        )
    return whole


def stored_state(checkpoint: Checkpoint) -> ProgramState:
    """The content of a checkpoint as a program state."""
    return ProgramState(
        model=checkpoint.model,
        optimiser=checkpoint.optimiser,
        averaged=checkpoint.averaged,
        buffers=checkpoint.buffers,
    )


def restore_program(program: TrainingProgram, checkpoint: Checkpoint) -> None:
    """Loads weights and optimiser state of a checkpoint into a program, in place."""
    take_over(program, stored_state(checkpoint), way=_FromCheckpoint(program.model, checkpoint.path))


class _FromCheckpoint:
    """Loads a checkpoint into the whole model with `load_state_dict`; refuses one that does not fit."""

    def __init__(self, model: torch.nn.Module, path: Path) -> None:
        self._model, self._path = model, path

    def model(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        _load_state(self._model, stored, self._path)

    def averaged(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        if stored:
            _copy(own, stored)

    def optimiser(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
        if set(own) != set(stored):
            raise BadInputError(
                f"{self._path} holds the state of another optimiser; --overwrite starts afresh."
            )
        _copy(own, stored)

    def buffers(self, own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        take_over_unsaved(self._model, stored)

    def attributes(self, stored: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return stored


@torch.no_grad()
def _copy(own: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    for name, value in own.items():
        value.copy_(stored[name])


def restore_model(model: torch.nn.Module, checkpoint: Checkpoint) -> None:
    """Loads the weights of a checkpoint, averaged ones if it has them, into a model."""
    _load_state(model, checkpoint.averaged or checkpoint.model, checkpoint.path)
    take_over_unsaved(model, checkpoint.buffers)


def _load_state(model: torch.nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    give_own_memory(model)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInputError(
            f"{path} does not fit --model: {str(error).splitlines()[-1].strip()} If the run trained a module "
            "of your own in Python, pass that module as model=."
        ) from error
