"""Losses that are not finite end a run before their weights are kept."""

import numpy as np

from drivetrain.core.errors import RunFailedError
from drivetrain.program.training import TrainingProgram
from drivetrain.run.events.loss_scale_report import check_scale

__all__ = ["require_sound"]


def require_sound(program: TrainingProgram, *, first: int, update: int) -> None:
    """Refuses to go on where a loss of updates first..update-1, or the loss scale after them, is no use."""
    losses = program.records.read("loss", first, update)
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise RunFailedError(
            f"the loss became {losses[wrong[0]]} at update {first + int(wrong[0]) + 1}; no checkpoint "
            f"was written after that; {program.rules.advice_on_overflow}."
        )
    check_scale(program.records, update)
