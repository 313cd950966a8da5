"""Times of steps, and what a device can do."""

import pytest
import torch

from drivetrain.bench import clock
from drivetrain.bench import machine as peak
from drivetrain.bench.clock import StepClock
from drivetrain.bench.machine import describe_machine
from drivetrain.devices.device import choose_device
from tests.slow_motion import SlowMotion


def test_steps_are_timed_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowMotion()
    monkeypatch.setattr(clock, "perf_counter", time.perf_counter)
    steps = StepClock(choose_device("cpu"))
    for seconds in (2.0, 0.0):
        time.sleep(seconds)
        steps.note()
    assert steps.stop() == [2.0, 0.0]
    assert steps.total_s == 2.0


@pytest.mark.usefixtures("small_peak")
def test_the_peak_of_a_device() -> None:
    found = peak.measure_peak(choose_device("cpu"), dtype=torch.float32)
    assert found.tflops > 0
    assert found.copy_gb_per_second > 0
    assert found.to_json()["dtype"] == "float32"


def test_the_machine_is_described() -> None:
    found = describe_machine("cpu")
    assert found["torch"] == torch.__version__
    assert set(found) == {"cpu", "cores", "torch", "python"}
