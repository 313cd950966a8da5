"""The heartbeats of a rank: the loop notes plain numbers, and a thread writes them into the run directory."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from drivetrain.program.training_program import TrainingProgram
from drivetrain.store.heartbeat import Heartbeat, RankState, write_heartbeat

__all__ = ["Pulse", "sending_heartbeats"]

# A heartbeat every _PERIOD_S, and after a log, but never two within _LEAST_GAP_S.
_PERIOD_S, _LEAST_GAP_S = 2.0, 0.5
# A disk that hangs must not keep a finished process waiting.
_PATIENCE_S = 2.0


class Pulse:
    """What a rank is doing. The loop only assigns attributes here: nothing is read from the device."""

    def __init__(self) -> None:
        self.state: RankState = "starting"
        self.update = self.total_updates = 0
        self.loss: float | None = None
        self.metric_name: str | None = None
        self.metric: float | None = None
        self.images_per_second: float | None = None
        self.news = threading.Event()
        self._paced_from: tuple[int, float] | None = None

    def begin(self, update: int, *, total: int) -> None:
        """The training begins after `update` of `total` updates."""
        self.state, self.update, self.total_updates = "training", update, total

    def begin_pace(self, update: int) -> None:
        """The remaining time follows from the pace from here on; earlier updates may have compiled."""
        self._paced_from = (update, time.monotonic())

    @contextmanager
    def turned_to(self, state: RankState) -> Iterator[None]:
        """Inside the block the rank does something else."""
        before, self.state = self.state, state
        self.news.set()
        try:
            yield
        finally:
            self.state = before
            self.news.set()

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the last update, validations included; None while there is no pace."""
        if self._paced_from is None or self.update <= self._paced_from[0]:
            return None
        update, since_s = self._paced_from
        per_update_s = (time.monotonic() - since_s) / (self.update - update)
        return per_update_s * (self.total_updates - self.update)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a rank runs; it never changes."""

    host: str
    pid: int
    process_began: float
    rank: int
    replica: int
    stage: str | None
    device: str
    device_index: int | None
    device_id: str | None


@contextmanager
def sending_heartbeats(run: Path, program: TrainingProgram, pulse: Pulse) -> Iterator[None]:
    """Inside the block this rank writes heartbeats, if its host sees the run directory.

    The last one says that the rank has finished, or else that it has stopped. A disk error loses heartbeats
    and nothing else.
    """
    if not run.is_dir():
        yield
        return
    writer = _Writer(run, _place_of(program), pulse)
    try:
        yield
    finally:
        if pulse.state != "finished":
            pulse.state = "stopped"
        writer.stop()


class _Writer:
    """The thread that writes."""

    def __init__(self, run: Path, place: _Place, pulse: Pulse) -> None:
        self._run_path, self._place, self._pulse = run, place, pulse
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Writes the last heartbeat and ends the thread."""
        self._ends.set()
        self._pulse.news.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            self._write()
            self._ends.wait(_LEAST_GAP_S)
            self._pulse.news.wait(_PERIOD_S - _LEAST_GAP_S)
            self._pulse.news.clear()
        self._write()

    def _write(self) -> None:
        pulse, place = self._pulse, self._place
        beat = Heartbeat(
            time=time.time(),
            host=place.host,
            pid=place.pid,
            process_began=place.process_began,
            rank=place.rank,
            replica=place.replica,
            stage=place.stage,
            device=place.device,
            device_index=place.device_index,
            device_id=place.device_id,
            state=pulse.state,
            update=pulse.update,
            total_updates=pulse.total_updates,
            images_per_second=pulse.images_per_second,
            loss=pulse.loss,
            metric_name=pulse.metric_name,
            metric=pulse.metric,
            seconds_left=pulse.seconds_left,
        )
        with suppress(OSError):
            write_heartbeat(self._run_path, beat)


def _place_of(program: TrainingProgram) -> _Place:
    stages = () if program.stages is None else program.stages.own
    device = program.device
    return _Place(
        host=socket.gethostname(),
        pid=os.getpid(),
        process_began=_began_s(),
        rank=program.group.rank,
        replica=program.groups.replicas.rank,
        stage=", ".join(map(str, stages)) or None,
        device=str(device.torch_device),
        device_index=None if device.is_cpu else device.torch_device.index or 0,
        device_id=None if device.is_cpu else device.hardware,
    )


def _began_s() -> float:
    """When this process began; now where the system does not tell."""
    try:
        return psutil.Process().create_time()
    except (psutil.Error, OSError):
        return time.time()
