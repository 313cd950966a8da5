"""Readings of a host that is not there, with two accelerators and the ranks of a run on them."""

from dataclasses import replace
from pathlib import Path

from drivetrain.monitor.readings import Accelerator, DeviceProcess, HostProcess, HostReading, Processor
from drivetrain.store.heartbeat import Heartbeat

__all__ = ["BEAT", "NOW", "READING", "RUN", "accelerator", "process"]

NOW = 1_800_000_000.0
RUN = Path("runs/digits-unet-01234567")


def accelerator(index: int, *pids: int) -> Accelerator:
    """An accelerator with processes on it."""
    return Accelerator(
        index=index,
        kind="NVIDIA H200",
        id=f"GPU-8f1c7a3e-0000-1111-2222-33334444555{index}",
        serial="1652923034567",
        driver="550.54.15",
        firmware="96.00.99.00.01",
        utilisation_percent=98.0,
        memory_used_bytes=61 << 30,
        memory_total_bytes=140 << 30,
        clock_mhz=1830.0,
        largest_clock_mhz=1980.0,
        chip_celsius=54.0,
        memory_celsius=61.0,
        power_watts=512.0,
        power_limit_watts=700.0,
        processes=tuple(DeviceProcess(pid=pid, memory_bytes=2 << 30) for pid in pids),
    )


def process(pid: int, *, parent: int = 1, cpu_percent: float = 50.0) -> HostProcess:
    """A process that began 100 s ago."""
    return HostProcess(
        pid=pid,
        began=NOW - 100,
        parent=parent,
        user="ada",
        command=f"python train_{pid}.py",
        cpu_percent=cpu_percent,
        memory_bytes=3 << 30,
    )


BEAT = Heartbeat(
    time=NOW - 1,
    host="gpu01",
    pid=11,
    process_began=NOW - 100,
    rank=0,
    replica=0,
    stage="0",
    state="training",
    update=120,
    total_updates=1000,
    images_per_second=1234.0,
    loss=0.25,
    metric_name="dice",
    metric=0.875,
    seconds_left=80.0,
    device="cuda:0",
    device_index=0,
    device_id="8F1C7A3E-0000-1111-2222-333344445550",
)

READING = HostReading(
    time=NOW,
    host="gpu01",
    accelerators=[accelerator(0, 11), accelerator(1)],
    processor=replace(Processor(), kind="EPYC", cores=64, threads=128, utilisation_percent=12.0, load=3.5),
    processes={pid: process(pid) for pid in (11, 12)},
)
