"""Updates that leave no trace, for whoever wants to know how long they take."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from drivetrain.program.training import TrainingProgram

__all__ = ["leaving_no_trace"]


@contextmanager
def leaving_no_trace(program: TrainingProgram) -> Iterator[None]:
    """Inside, the program may run updates; after it everything is as it was, bit for bit."""
    # On the host: an accelerator may have no room for everything twice.
    kept = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in _state(program)]
    was_training = program.model.training
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in kept:
                tensor.copy_(before)
        program.batch_norms.forget()
        program.model.train(was_training)
        torch.set_rng_state(drawn[0])
        random.setstate(drawn[1])
        np.random.set_state(drawn[2])


def _state(program: TrainingProgram) -> Iterator[Tensor]:
    """Every tensor that an update changes and the next one reads."""
    return chain(
        [program.parameters.values, program.parameters.gradients],
        program.model.buffers(),
        program.optimiser.states.values(),
        [] if program.average is None else program.average.averages,
        [] if program.loss_scale is None else [*program.loss_scale.states.values(), program.loss_scale.skips],
        program.records.columns.values(),
    )
