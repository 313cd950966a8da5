"""Keeps freed memory in the process, so that large temporaries do not fault in anew every update."""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_LARGEST_THRESHOLD = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tells glibc's allocator to reuse freed memory; False where there is no such allocator."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _LARGEST_THRESHOLD))
