"""Ends the processes of a job when the process that started them is gone, even if it was killed."""

import ctypes
import os
import signal
import sys
import threading
import time

__all__ = ["die_with_parent_thread", "watch_parent"]

# An orphan lives at most this long, and looking twice a second costs next to nothing.
_PERIOD_S = 0.5
# From linux/prctl.h; Python has no name for it.
_PR_SET_PDEATHSIG = 1


def die_with_parent_thread(parent_pid: int) -> None:
    """Makes Linux kill this process when the thread that started it ends; other systems do nothing.

    It follows the thread, not the process: call it only if that thread lives as long as the job.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before prctl took effect, which then sends no signal.
    if os.getppid() != parent_pid:
        os._exit(1)


def watch_parent(parent_pid: int) -> None:
    """Kills this process and its process group, which it must lead, once its parent is gone."""
    threading.Thread(target=_watch, args=(parent_pid,), name="parent watch", daemon=True).start()


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_PERIOD_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)
