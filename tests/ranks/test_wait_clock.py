"""Waits are counted where they happen."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from drivetrain.ranks.wait_clock import WaitClock

CPU = torch.device("cpu")


class _Marks:
    """Marks in the stream of a pretended device, whose time goes on with the waits alone."""

    now_s = 0.0
    made = 0

    def __init__(self, _device: torch.device, *, enable_timing: bool) -> None:
        assert enable_timing
        _Marks.made += 1
        self.at_s = -1.0

    def record(self) -> None:
        self.at_s = _Marks.now_s

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "_Marks") -> float:
        return 1000.0 * (other.at_s - self.at_s)


def _wait_on_device() -> None:
    _Marks.now_s += 0.25


def test_a_processs_own_waits_are_timed() -> None:
    clock = WaitClock()
    wait = clock.timed(lambda: time.sleep(0.05), device=CPU)
    assert clock.read() == 0.0
    wait()
    first = clock.read()
    assert first is not None
    assert first >= 0.05
    wait()
    assert (clock.read() or 0.0) >= first + 0.05


def test_waits_of_a_stream_are_read_from_marks_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "Event", _Marks)
    clock = WaitClock()
    for _ in range(1000):
        clock.timed(_wait_on_device, device=torch.device("cuda"))()
    assert len(clock._pending) <= 256
    assert clock.read() == pytest.approx(250.0)


def test_a_device_that_cannot_tell_gives_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("no timing here")

    waited: list[int] = []
    wait: Callable[[], object] = lambda: waited.append(1)  # noqa: E731
    monkeypatch.setattr(torch, "Event", refuse)
    clock = WaitClock()
    clock.timed(wait, device=torch.device("mps"))()
    assert waited == [1]
    assert clock.read() is None
