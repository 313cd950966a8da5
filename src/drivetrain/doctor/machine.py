"""Cores, memory, disk and limits of this machine, as far as this process may use them."""

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

_LEAST_MEMORY_BYTES = 512 << 20
_EASY_MEMORY_BYTES = 2 << 30
_LEAST_DISK_BYTES = 64 << 20
_EASY_DISK_BYTES = 2 << 30
_EASY_SHARED_BYTES = 1 << 30
_EASY_OPEN_FILES = 1024
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_SHARED_MEMORY = Path("/dev/shm")


def check_cores(group: Path = _CONTROL_GROUP) -> Finding:
    """The cores it may use; a container may have a share of their time that no other number shows."""
    usable, there = cores(), os.cpu_count() or 1
    text = f"{usable} of {there} cores" if usable < there else f"{there} cores"
    quota = _quota_cores(group)
    if quota is not None and quota < usable:
        fitting = max(1, int(quota))
        return note(
            "cores",
            f"{text}, but the container may use {quota:g} of them at a time; --num-threads {fitting} fits.",
        )
    named = os.environ.get("OMP_NUM_THREADS")
    if named is not None and named.isdigit() and int(named) != usable:
        return note("cores", f"{text}, but OMP_NUM_THREADS={named}; --num-threads {usable} uses all.")
    return ok("cores", f"{text}, all used unless --num-threads says otherwise.")


def check_load() -> Finding:
    """What else runs now: a training would share the cores with it, and times would mislead."""
    load, there = psutil.getloadavg()[0], os.cpu_count() or 1
    text = f"{load:.1f} on {there} cores in the last minute"
    if load <= there:
        return ok(LOAD, f"{text}.")
    return note(
        LOAD,
        f"{text}: other programs use the cores, so a training runs slower until they end; what `bench` and "
        "--compile auto measure now is too slow.",
    )


def check_memory(group: Path = _CONTROL_GROUP) -> Finding:
    """What is free; a container has a limit of its own."""
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    limit, used = _number_in(group / "memory.max"), _number_in(group / "memory.current")
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (used or 0))
    text = f"{gibibytes(free)} of {gibibytes(total)} are free"
    if free < _LEAST_MEMORY_BYTES:
        return problem("memory", f"{text}, and torch alone takes half a GiB; end something else.")
    if free < _EASY_MEMORY_BYTES:
        return note("memory", f"{text}, enough for small models; `drivetrain plan` says what one takes.")
    return ok("memory", f"{text}.")


def check_disk(folder: Path) -> Finding:
    """Whether runs can be written where the commands are typed."""
    where = f"the working folder {folder}"
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        why = error.strerror or error
        return problem("disk", f"{where} cannot be written ({why}); go elsewhere, or give --output-dir.")
    if free < _LEAST_DISK_BYTES:
        return problem("disk", f"{where} has {gibibytes(free)} left, too little for checkpoints.")
    if free < _EASY_DISK_BYTES:
        return note("disk", f"{where} has {gibibytes(free)} left; --keep-checkpoints 1 takes the least.")
    return ok("disk", f"{gibibytes(free)} are left in {where}.")


def check_shared_memory(folder: Path = _SHARED_MEMORY) -> Finding:
    """What loader workers hand batches over by."""
    if not folder.is_dir():
        return ok("shared memory", f"this system has no {folder}, and loader workers do without.")
    usage = shutil.disk_usage(folder)
    text = f"{folder} holds {gibibytes(usage.total)}, {gibibytes(usage.free)} of it free"
    if usage.free < _EASY_SHARED_BYTES:
        return note(
            "shared memory",
            f"{text}, by which loader workers hand over batches; --num-workers 0 does without it, and a "
            "container gets more by --shm-size.",
        )
    return ok("shared memory", f"{text}.")


def check_open_files(limit: Callable[[], int | None] | None = None) -> Finding:
    """Ranks and loader workers hold files and sockets for each other."""
    most = (limit or _open_file_limit)()
    if most is not None and most < _EASY_OPEN_FILES:
        return note(
            "open files",
            f"a process may open {most}, which many loader workers or ranks exceed; `ulimit -n 4096` helps.",
        )
    return ok("open files", "no limit." if most is None else f"a process may open {most}.")


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
