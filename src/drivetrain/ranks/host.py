"""Which host a process is on, as far as sharing memory with other processes goes."""

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["host_key"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")
_MEMORY_FILES = Path("/dev/shm")


@cache
def host_key() -> str:
    """The same for processes that can open each other's memory, and for no others.

    Hosts may have one name in common, and containers on one host have memory of their own: the boot tells
    hosts apart, and the processes and memory files that can be seen tell containers apart.
    """
    return " ".join((socket.gethostname(), *_kernel_marks()))


def _kernel_marks() -> list[str]:
    """What Linux says; other systems leave the name alone."""
    marks: list[str] = []
    with suppress(OSError):
        marks.append(_BOOT.read_text().strip())
    with suppress(OSError):
        marks.append(os.readlink(_PROCESSES))
    with suppress(OSError):
        found = _MEMORY_FILES.stat()
        marks.append(f"shm:{found.st_dev}:{found.st_ino}")
    return marks
