"""Reads this host: its processors and processes through psutil, its accelerators through NVML."""

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from drivetrain.devices.processor import read_processor
from drivetrain.monitor.nvml import open_nvml
from drivetrain.monitor.process_run import run_of_command, run_of_files
from drivetrain.monitor.readings import HostProcess, HostReading, Processor

__all__ = ["LocalHost", "hottest"]

_OF_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "acpitz")
_INTERPRETERS = ("python", "drivetrain", "torchrun")
Value = TypeVar("Value")


class LocalHost:
    """This host. What may not be read, such as the files of other users, is None."""

    def __init__(self) -> None:
        self._nvml, note = open_nvml()
        self._notes = () if note is None else (note,)
        # A process keeps its run; looking through its open files costs the most.
        self._runs: dict[tuple[int, float], Path] = {}

    def sample(self) -> HostReading:
        """One look at the host: accelerators first, so that their processes are looked up while they live."""
        accelerators = [] if self._nvml is None else self._nvml.accelerators()
        return HostReading(
            time=time.time(),
            host=socket.gethostname(),
            accelerators=accelerators,
            processor=_processor(),
            processes={process.pid: process for process in self._processes()},
            notes=self._notes,
        )

    def _processes(self) -> list[HostProcess]:
        found = [self._described(process) for process in psutil.process_iter()]
        return [process for process in found if process is not None]

    def _described(self, process: psutil.Process) -> HostProcess | None:
        """The process; None if it has ended since it was listed."""
        try:
            with process.oneshot():
                began = process.create_time()
                command = _asked(process.cmdline) or []
                name = _asked(process.name)
                return HostProcess(
                    pid=process.pid,
                    began=began,
                    parent=_asked(process.ppid),
                    user=_asked(process.username),
                    command=_in_a_line(command) or name,
                    cpu_percent=_asked(lambda: process.cpu_percent(None)),
                    memory_bytes=_asked(lambda: process.memory_info().rss),
                    run=self._run_of(process, began=began, command=command),
                )
        except psutil.NoSuchProcess:
            return None
        except (psutil.Error, OSError):
            return HostProcess(pid=process.pid, began=0.0)

    def _run_of(self, process: psutil.Process, *, began: float, command: Sequence[str]) -> Path | None:
        key = (process.pid, began)
        if key not in self._runs:
            if not any(word in part for part in command[:3] for word in _INTERPRETERS):
                return None
            opened = _asked(process.open_files) or []
            run = run_of_files(Path(file.path) for file in opened)
            if run is None:
                run = run_of_command(command, folder=_asked(process.cwd))
            if run is None:
                return None
            self._runs[key] = run
        return self._runs[key]


def _asked(ask: Callable[[], Value]) -> Value | None:
    """The answer of the system; None if it refuses one."""
    try:
        return ask()
    except psutil.NoSuchProcess:
        raise
    except (psutil.Error, OSError, NotImplementedError):
        return None


def _in_a_line(command: Sequence[str]) -> str:
    """A command line without the folder of its program."""
    if not command:
        return ""
    words = [os.path.basename(command[0]) or command[0], *command[1:]]
    return " ".join(" ".join(words).split())


def _processor() -> Processor:
    memory = psutil.virtual_memory()
    clock = _asked(psutil.cpu_freq)
    return Processor(
        kind=read_processor().name or None,
        cores=psutil.cpu_count(logical=False),
        threads=psutil.cpu_count(),
        utilisation_percent=psutil.cpu_percent(None),
        load=_asked(lambda: psutil.getloadavg()[0]),
        memory_used_bytes=memory.total - memory.available,
        memory_total_bytes=memory.total,
        clock_mhz=None if clock is None or not clock.current else clock.current,
        chip_celsius=hottest(_temperatures()),
    )


def _temperatures() -> dict[str, list[float]]:
    """Degrees by the name of the chip that measures them; psutil has none on some systems."""
    if sys.platform != "linux":
        return {}
    sensors = _asked(psutil.sensors_temperatures) or {}
    return {name: [entry.current for entry in entries] for name, entries in sensors.items()}


def hottest(temperatures: dict[str, list[float]]) -> float | None:
    """The highest temperature of the first chip that belongs to a processor."""
    named = next((temperatures[name] for name in _OF_PROCESSORS if temperatures.get(name)), [])
    return max(named, default=None)
