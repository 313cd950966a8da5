"""Checks cores, load, memory, disk and limits of this machine, as far as this process may use them."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

from drivetrain.doctor.finding import Finding, gibibytes, note, ok, problem
from drivetrain.ranks.threads import cores

__all__ = [
    "LOAD",
    "check_cores",
    "check_disk",
    "check_load",
    "check_memory",
    "check_open_files",
    "check_shared_memory",
]

LOAD = "load"

# Below a `_LEAST` value training cannot run (a problem); below an `_EASY` value it may get tight (a note).
# Importing torch alone takes about 512 MiB of memory.
_LEAST_MEMORY_BYTES = 512 << 20
_EASY_MEMORY_BYTES = 2 << 30
_LEAST_DISK_BYTES = 64 << 20
_EASY_DISK_BYTES = 2 << 30
# Containers often come with little: Docker's default for /dev/shm is 64 MiB.
_EASY_SHARED_BYTES = 1 << 30
_EASY_OPEN_FILES = 1024
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_SHARED_MEMORY = Path("/dev/shm")


def check_cores(group: Path = _CONTROL_GROUP) -> Finding:
    """The cores this process may use, and the CPU quota of a container, which the core count hides."""
    usable, there = cores(), os.cpu_count() or 1
    text = f"{usable} of {there} cores" if usable < there else f"{there} cores"
    quota = _quota_cores(group)
    if quota is not None and quota < usable:
        fitting = max(1, int(quota))
        return note(
            "cores",
            f"{text}, but the container is limited to {quota:g} of them; use --num-threads {fitting}.",
        )
    named = os.environ.get("OMP_NUM_THREADS")
    if named is not None and named.isdigit() and int(named) != usable:
        return note("cores", f"{text}, but OMP_NUM_THREADS={named}; --num-threads {usable} uses all cores.")
    return ok("cores", f"{text}, all used by default (see --num-threads).")


def check_load() -> Finding:
    """The load average: other programs slow a training down and spoil measured times."""
    load, there = psutil.getloadavg()[0], os.cpu_count() or 1
    text = f"load average {load:.1f} on {there} cores in the last minute"
    if load <= there:
        return ok(LOAD, f"{text}.")
    return note(
        LOAD,
        f"{text}: other programs use the cores, so training runs slower until they end, and the times that "
        "`bench` and --compile auto measure now are too long.",
    )


def check_memory(group: Path = _CONTROL_GROUP) -> Finding:
    """The free memory, within the limit of a container."""
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit, used = _number_in(group / "memory.max"), _number_in(group / "memory.current")
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (used or 0))
    text = f"{gibibytes(free)} of {gibibytes(total)} free"
    if free < _LEAST_MEMORY_BYTES:
        return problem("memory", f"{text}, but torch alone needs 0.5 GiB; end other programs first.")
    if free < _EASY_MEMORY_BYTES:
        return note("memory", f"{text}, enough for small models; `drivetrain plan` estimates what one needs.")
    return ok("memory", f"{text}.")


def check_disk(folder: Path) -> Finding:
    """Whether runs can be written to the working folder."""
    where = f"the working folder {folder}"
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        why = error.strerror or error
        return problem(
            "disk", f"{where} cannot be written to ({why}); use another folder, or give --output-dir."
        )
    if free < _LEAST_DISK_BYTES:
        return problem("disk", f"{where} has {gibibytes(free)} free, too little for checkpoints.")
    if free < _EASY_DISK_BYTES:
        return note("disk", f"{where} has {gibibytes(free)} free; --keep-checkpoints 1 needs the least.")
    return ok("disk", f"{gibibytes(free)} free in {where}.")


def check_shared_memory(folder: Path = _SHARED_MEMORY) -> Finding:
    """The shared memory through which loader workers pass batches to the training process."""
    if not folder.is_dir():
        return ok("shared memory", f"this system has no {folder}, and loader workers do not need it.")
    usage = shutil.disk_usage(folder)
    text = f"{folder} holds {gibibytes(usage.total)}, {gibibytes(usage.free)} of it free"
    if usage.free < _EASY_SHARED_BYTES:
        return note(
            "shared memory",
            f"{text}, which may be too little for loader workers to pass batches; --num-workers 0 needs "
            "none, and docker run --shm-size gives a container more.",
        )
    return ok("shared memory", f"{text}.")


def check_open_files(limit: Callable[[], int | None] | None = None) -> Finding:
    """The limit of open files; ranks and loader workers keep files and sockets open for each other."""
    most = (limit or _open_file_limit)()
    if most is not None and most < _EASY_OPEN_FILES:
        return note(
            "open files",
            f"a process may open {most}, too few for many loader workers or ranks; run `ulimit -n 4096`.",
        )
    return ok("open files", "no limit." if most is None else f"a process may open up to {most}.")


def _open_file_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _quota_cores(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
