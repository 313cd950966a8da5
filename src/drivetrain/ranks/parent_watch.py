"""A process of a job does not outlive the one that started it, however that one ends."""

import ctypes
import os
import signal
import sys
import threading
import time

__all__ = ["die_with_parent_thread", "watch_parent"]

_PERIOD_S = 0.5
_PR_SET_PDEATHSIG = 1


def die_with_parent_thread(parent_pid: int) -> None:
    """Linux ends this process together with the very thread that started it; other systems do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def watch_parent(parent_pid: int) -> None:
    """Ends this process and its process group, of which it must be the leader, once its parent is gone."""
    threading.Thread(target=_watch, args=(parent_pid,), name="parent watch", daemon=True).start()


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_PERIOD_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)
