"""The text of the progress line, and the numbers that the heartbeats get."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from torch import nn

from drivetrain.devices.device import choose_device
from drivetrain.run.loop.clocks import UpdateTimes
from drivetrain.run.loop.context import RunContext
from drivetrain.run.loop.training_log import TrainingLog
from drivetrain.run.reporting.heartbeats import Pulse


def _log(metric: str, *, is_cpu: bool = True) -> TrainingLog:
    program: Any = SimpleNamespace(
        device=choose_device("cpu") if is_cpu else SimpleNamespace(is_cpu=False),
        task=SimpleNamespace(metric=metric),
        model=nn.Identity(),
        records=SimpleNamespace(read=lambda name, first, last: np.array([0.25 if name == "loss" else 0.75])),
    )
    context = SimpleNamespace(program=program, pulse=Pulse())
    times = SimpleNamespace(speed_now=lambda _: 62.4)
    return TrainingLog(context=cast(RunContext, context), times=cast(UpdateTimes, times), log_updates=10)


@pytest.mark.parametrize(("metric", "words"), [("dice", "soft Dice"), ("accuracy", "accuracy")])
def test_the_progress_line_begins_with_speed_and_metric(metric: str, words: str) -> None:
    log = _log(metric)
    assert log.newest(5) == f"images/s: 62  {words}: 0.7500  loss: 0.2500"
    pulse = log.context.pulse
    assert (pulse.loss, pulse.metric_name, pulse.metric, pulse.images_per_second) == (
        0.25,
        metric,
        0.75,
        62.4,
    )


def test_an_accelerator_is_not_asked_between_logs() -> None:
    log = _log("dice", is_cpu=False)
    assert log.newest(5) == ""
    assert log.context.pulse.loss is None
