"""Reading this host: its own process is there, and processes that end or refuse are no trouble."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from drivetrain.monitor.host import LocalHost, hottest


class _Fake:
    """A process that raises the same error at every question."""

    def __init__(self, pid: int, error: type[psutil.Error]) -> None:
        self.pid, self._error = pid, error

    @contextmanager
    def oneshot(self) -> Iterator[None]:
        yield

    def create_time(self) -> float:
        if self._error is psutil.NoSuchProcess:
            raise psutil.NoSuchProcess(self.pid)
        return 5.0

    def _refuse(self) -> None:
        raise psutil.AccessDenied(self.pid)

    cmdline = name = ppid = username = memory_info = open_files = cwd = _refuse

    def cpu_percent(self, interval: float | None) -> float:
        raise psutil.AccessDenied(self.pid)


def test_this_process_is_found() -> None:
    reading = LocalHost().sample()
    own = reading.processes[os.getpid()]
    assert own.began == psutil.Process().create_time()
    assert own.command
    assert reading.processor.threads == os.cpu_count()
    assert reading.processor.memory_total_bytes == psutil.virtual_memory().total


def test_a_process_that_ends_between_two_questions_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = [_Fake(1, psutil.NoSuchProcess), _Fake(2, psutil.AccessDenied)]
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(fakes))
    processes = LocalHost().sample().processes
    assert list(processes) == [2]
    assert (processes[2].began, processes[2].command, processes[2].cpu_percent) == (5.0, None, None)


def test_the_temperature_is_that_of_the_processor() -> None:
    assert hottest({"nvme": [70.0], "coretemp": [40.0, 45.0]}) == 45.0
    assert hottest({"nvme": [70.0]}) is None
    assert hottest({}) is None
