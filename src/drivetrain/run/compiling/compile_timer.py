"""Times the updates of a program compiled and uncompiled, on state that is put back afterwards."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from statistics import median
from typing import Self

import numpy as np
import torch
from torch import Tensor

from drivetrain.console.reporter import Reporter
from drivetrain.models.kept_values import keeping_values
from drivetrain.program.training_program import TrainingProgram
from drivetrain.state.own_state import own_state

__all__ = ["MeasuringStoppedError", "ProgramTimer", "leaving_no_trace"]

# At least 5 updates, so that the median ignores outliers; then until 1 s is filled or 50 are timed, so that
# short updates get a steady median and long ones do not delay the start.
_FEWEST_TIMED, _MOST_TIMED = 5, 50
_ENOUGH_S = 1.0
# Progress texts during warm-up and during timing.
_PLAIN = ("timing uncompiled updates (--compile auto)",) * 2
_COMPILED = ("compiling (--compile auto)", "timing compiled updates")
# A captured (CUDA graph) update runs twice normally and is recorded at its third run.
_WARM_UPS, _WARM_UPS_OF_CAPTURE = 1, 3


@contextmanager
def leaving_no_trace(program: TrainingProgram) -> Iterator[None]:
    """Inside the block the program may run updates; afterwards its state is restored bit for bit."""
    # Copies go to host memory: an accelerator may not have room for the state twice.
    kept = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in _state(program)]
    was_training = program.model.training
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        with keeping_values(program.model):
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
    skips = program.mover.skips
    return chain(
        [program.parameters.gradients],
        own_state(program).moving,
        program.model.buffers(),
        [] if skips is None else [skips],
    )


class MeasuringStoppedError(Exception):
    """The run was asked to stop while updates were timed."""


class ProgramTimer:
    """Times updates from `first` on, in order, starting over after the last: streamed data come in order.

    The state is copied only when the first timing begins, because copying a large model takes time.
    """

    def __init__(
        self,
        program: TrainingProgram,
        *,
        first: int,
        goes_on: Callable[[], bool],
        reporter: Reporter,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._program, self._first, self._run = program, first, 0
        self._updates = len(program.records) - first
        self._goes_on, self._clock, self._reporter = goes_on, clock, reporter
        self._put_back = ExitStack()
        self._names = _PLAIN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back.close()

    @property
    def failure(self) -> str | None:
        """Why the model could not be compiled."""
        return self._program.compiled.failure

    def time_plain(self) -> float:
        """Seconds of an uncompiled update."""
        self._switch(on=False)
        return self._time()[1]

    def time_compiled(self) -> tuple[float, float]:
        """Seconds of compiling, and of a compiled update; the program stays compiled."""
        self._switch(on=True)
        return self._time()

    def _switch(self, *, on: bool) -> None:
        self._names = _COMPILED if on else _PLAIN
        if self._program.compiled.is_on != on:
            self._program.compiled.switch(on)
        if self._program.capture is not None:
            self._program.capture.forget()

    def _time(self) -> tuple[float, float]:
        if not self._run:
            self._put_back.enter_context(leaving_no_trace(self._program))
            self._program.model.train()
        warming, timing = self._names
        warm_ups = _WARM_UPS if self._program.capture is None else _WARM_UPS_OF_CAPTURE
        with self._reporter.showing(warming):
            warming_s = sum(self._update() for _ in range(warm_ups))
        seconds: list[float] = []
        with self._reporter.showing(timing, total=_FEWEST_TIMED):
            while len(seconds) < _FEWEST_TIMED or (sum(seconds) < _ENOUGH_S and len(seconds) < _MOST_TIMED):
                seconds.append(self._update())
                self._reporter.progress_if_due(min(len(seconds), _FEWEST_TIMED))
        usual_s = median(seconds)
        return max(0.0, warming_s - warm_ups * usual_s), usual_s

    def _update(self) -> float:
        if not self._goes_on():
            raise MeasuringStoppedError
        self._program.device.synchronise()
        begin = self._clock()
        self._program.run_update(self._first + self._run % self._updates)
        self._program.device.synchronise()
        self._run += 1
        return self._clock() - begin
