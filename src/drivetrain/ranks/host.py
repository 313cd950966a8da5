"""A key that tells which processes run on the same host and can share memory."""

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
    """A key shared by exactly the processes that can open each other's memory.

    The host name is not enough: two hosts may have the same name, and containers on one host do not share
    memory. The boot id tells hosts apart; the PID namespace and /dev/shm tell containers apart.
    """
    return " ".join((socket.gethostname(), *_kernel_marks()))


def _kernel_marks() -> list[str]:
    """Identifiers of the host and container under Linux; other systems have only the name."""
    marks: list[str] = []
    with suppress(OSError):
        marks.append(_BOOT.read_text().strip())
    with suppress(OSError):
        marks.append(os.readlink(_PROCESSES))
    with suppress(OSError):
        found = _MEMORY_FILES.stat()
        marks.append(f"shm:{found.st_dev}:{found.st_ino}")
    return marks
