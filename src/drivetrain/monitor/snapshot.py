"""Joins what was read of a host with the heartbeats of runs: every device with its processes and ranks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from drivetrain.monitor.readings import Accelerator, HostProcess, HostReading, Processor
from drivetrain.store.heartbeat import Heartbeat

__all__ = ["STALE_S", "Beats", "DeviceRows", "ProcessRow", "RankRow", "Snapshot", "take_snapshot"]

# A heartbeat comes every 2 s. A network file system may show it half a minute late.
STALE_S = 45.0
# Without a named run, runs that nobody has heard of for so long are left out.
_FORGOTTEN_S = 3600.0
# Beside the ranks of runs, a CPU shows the processes that keep it busy.
_BUSY_PERCENT, _MOST_BUSY = 5.0, 8
# How far the start of a process may differ between two readings of it.
_SAME_START_S = 2.0
Beats = Mapping[Path, Sequence[Heartbeat]]
Life = Literal["alive", "over", "stale", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """A rank of a run by its last heartbeat, `age_s` seconds old.

    alive: it runs; over: it finished or stopped; stale: it has not been heard of for a while; gone: it died.
    """

    run: Path
    beat: Heartbeat
    age_s: float
    life: Life


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """A process on a device; of one that is not visible here, only the pid is known."""

    pid: int
    user: str | None = None
    command: str | None = None
    age_s: float | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    run: Path | None = None
    rank: RankRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRows:
    """A device with the processes on it."""

    device: Accelerator | Processor
    processes: tuple[ProcessRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a host and runs are doing; `elsewhere` are ranks on other hosts, and those that ended."""

    time: float
    host: str
    accelerators: tuple[DeviceRows, ...]
    processor: DeviceRows
    elsewhere: tuple[RankRow, ...]
    notes: tuple[str, ...]


def take_snapshot(reading: HostReading, beats: Beats, *, named: Collection[Path] = ()) -> Snapshot:
    """Joins one reading with the heartbeats of runs; `named` runs are shown whatever their age."""
    ranks = [_rank(run, beat, reading) for run, of_run in beats.items() for beat in of_run]
    here = {rank.beat.pid: rank for rank in ranks if rank.life == "alive" and rank.beat.host == reading.host}
    apart = [rank for rank in ranks if here.get(rank.beat.pid) is not rank]
    return Snapshot(
        time=reading.time,
        host=reading.host,
        accelerators=tuple(
            DeviceRows(device=device, processes=_on_accelerator(device, here, reading))
            for device in reading.accelerators
        ),
        processor=DeviceRows(device=reading.processor, processes=_on_processor(here, reading)),
        elsewhere=tuple(rank for rank in apart if rank.run in named or _is_news(rank)),
        notes=tuple(reading.notes),
    )


def _rank(run: Path, beat: Heartbeat, reading: HostReading) -> RankRow:
    age_s = max(0.0, reading.time - beat.time)
    return RankRow(run=run, beat=beat, age_s=age_s, life=_life(beat, age_s, reading))


def _life(beat: Heartbeat, age_s: float, reading: HostReading) -> Life:
    if beat.is_over:
        return "over"
    if beat.host != reading.host:
        return "stale" if age_s > STALE_S else "alive"
    process = reading.processes.get(beat.pid)
    # Another process may have got the number of one that died.
    if process is None or abs(process.began - beat.process_began) > _SAME_START_S:
        return "gone"
    return "stale" if age_s > STALE_S else "alive"


def _is_news(rank: RankRow) -> bool:
    return rank.life != "over" and rank.age_s < _FORGOTTEN_S


def _on_accelerator(
    device: Accelerator, here: Mapping[int, RankRow], reading: HostReading
) -> tuple[ProcessRow, ...]:
    """The processes that the driver lists, and ranks that say they are on this device."""
    memory = {process.pid: process.memory_bytes for process in device.processes}
    of_ranks = [pid for pid, rank in here.items() if _is_on(rank.beat, device)]
    return tuple(
        replace(_row(pid, here, reading), memory_bytes=memory.get(pid))
        for pid in sorted({*memory, *of_ranks})
    )


def _is_on(beat: Heartbeat, device: Accelerator) -> bool:
    if beat.device_id is not None and device.id is not None:
        return _bare(beat.device_id) == _bare(device.id)
    return beat.device_index == device.index


def _bare(identity: str) -> str:
    """NVML begins the id of a device with GPU-, torch does not."""
    return identity.removeprefix("GPU-").lower()


def _on_processor(here: Mapping[int, RankRow], reading: HostReading) -> tuple[ProcessRow, ...]:
    """The ranks that train on the CPU, then the processes that keep it busy."""
    ranks = sorted(
        (rank for rank in here.values() if rank.beat.device_index is None),
        key=lambda rank: (str(rank.run), rank.beat.rank),
    )
    shown = [rank.beat.pid for rank in ranks]
    others = [
        process for process in reading.processes.values() if process.pid not in shown and _is_busy(process)
    ]
    others.sort(key=lambda process: (-(process.cpu_percent or 0.0), process.pid))
    pids = [*shown, *(process.pid for process in others[:_MOST_BUSY])]
    return tuple(_row(pid, here, reading) for pid in pids)


def _is_busy(process: HostProcess) -> bool:
    return (process.cpu_percent or 0.0) >= _BUSY_PERCENT


def _row(pid: int, here: Mapping[int, RankRow], reading: HostReading) -> ProcessRow:
    rank, process = here.get(pid), reading.processes.get(pid)
    if process is None:
        return ProcessRow(pid=pid, rank=rank, run=None if rank is None else rank.run)
    # Loader workers are children of their rank.
    parent = here.get(process.parent or 0)
    run = process.run if parent is None else parent.run
    return ProcessRow(
        pid=pid,
        user=process.user,
        command=process.command,
        age_s=max(0.0, reading.time - process.began),
        cpu_percent=process.cpu_percent,
        memory_bytes=process.memory_bytes,
        run=run if rank is None else rank.run,
        rank=rank,
    )
