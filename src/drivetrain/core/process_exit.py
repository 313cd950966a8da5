"""The end of a process that has used torch."""

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

__all__ = ["leave", "skip_last_collection"]


def skip_last_collection() -> None:
    """Skips Python's last garbage collection, which takes half a second over the objects of torch."""
    gc.freeze()


def leave(status: int) -> NoReturn:
    """Ends this process after its threads and exit functions, without the destructors of libraries.

    A thread of torch's communication that still runs while C++ objects are destroyed ends the process by
    SIGABRT now and then ("terminate called without an active exception", seen with torch 2.13), and
    a finished rank would count as a failed one.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
