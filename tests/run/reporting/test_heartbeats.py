"""The heartbeats that a rank sends: their last words, and what happens where they cannot be written."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drivetrain.devices.device import choose_device
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.reporting import heartbeats
from drivetrain.run.reporting.heartbeats import Pulse, sending_heartbeats
from drivetrain.store.heartbeat import Heartbeat, read_heartbeats
from tests.deadlines import wait_until

PROGRAM = cast(
    TrainingProgram,
    SimpleNamespace(
        stages=SimpleNamespace(own=(1, 3)),
        group=SimpleNamespace(rank=3),
        groups=SimpleNamespace(replicas=SimpleNamespace(rank=1)),
        device=choose_device("cpu"),
    ),
)


def _only(run: Path) -> Heartbeat:
    (beat,) = read_heartbeats(run)
    return beat


def test_heartbeats_say_what_the_loop_noted(tmp_path: Path) -> None:
    pulse = Pulse()
    with sending_heartbeats(tmp_path, PROGRAM, pulse):
        wait_until(lambda: read_heartbeats(tmp_path) != [])
        assert (_only(tmp_path).state, _only(tmp_path).pid) == ("starting", os.getpid())
        pulse.begin(4, total=10)
        pulse.loss, pulse.metric_name, pulse.metric = 0.5, "accuracy", 0.75
        with pulse.turned_to("validating"):
            wait_until(lambda: _only(tmp_path).state == "validating")
        assert pulse.state == "training"
        pulse.state = "finished"
    beat = _only(tmp_path)
    assert (beat.rank, beat.replica, beat.stage, beat.device) == (3, 1, "1, 3", "cpu")
    assert (beat.state, beat.update, beat.total_updates) == ("finished", 4, 10)
    assert (beat.loss, beat.metric_name, beat.metric) == (0.5, "accuracy", 0.75)


def test_a_rank_that_fails_says_that_it_stopped(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), sending_heartbeats(tmp_path, PROGRAM, Pulse()):
        raise ValueError("broken")
    assert _only(tmp_path).state == "stopped"


def test_a_host_that_does_not_see_the_directory_writes_nothing(tmp_path: Path) -> None:
    with sending_heartbeats(tmp_path / "elsewhere", PROGRAM, Pulse()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_disk_error_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Any] = []

    def refuse(*arguments: Any) -> None:
        tries.append(arguments)
        raise OSError("no space left")

    monkeypatch.setattr(heartbeats, "write_heartbeat", refuse)
    with sending_heartbeats(tmp_path, PROGRAM, Pulse()):
        wait_until(lambda: len(tries) > 0)
    assert len(tries) > 1


def test_the_time_left_follows_from_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pulse = Pulse()
    pulse.begin(0, total=11)
    assert pulse.seconds_left is None
    pulse.begin_pace(1)
    assert pulse.seconds_left is None
    now[0], pulse.update = 104.0, 3
    assert pulse.seconds_left == 16.0
