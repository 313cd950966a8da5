"""What glibc's allocator does with freed memory on a CPU: kept for the next update, or given back.

Kept memory has gaps. Before version 2.38 the place of a freed tensor is too small for another one of the same
size once small objects have settled around it, so that the heap of a training may grow to twice what is in
use and more. Memory given back has none, and every large tensor faults in anew, which can double the time of
an update.
"""

import ctypes
import sys
from typing import Any

__all__ = ["give_back_freed_memory", "give_back_large_tensors", "keep_freed_memory"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_LARGEST_THRESHOLD = 2**31 - 1
_MOST_MAPPED = 65536
_LARGE_BYTES = 2**18


def keep_freed_memory() -> bool:
    """Tells glibc's allocator to reuse freed memory; False where there is no such allocator."""
    return _set(_M_MMAP_MAX, 0) and _set(_M_TRIM_THRESHOLD, _LARGEST_THRESHOLD)


def give_back_large_tensors() -> bool:
    """Tells it to hand every large tensor back at once; False where there is no such allocator."""
    return _set(_M_MMAP_MAX, _MOST_MAPPED) and _set(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def give_back_freed_memory() -> bool:
    """Hands the system what is free now, between two parts of a run; False where nothing was given back."""
    trim = _of_glibc("malloc_trim")
    return trim is not None and bool(trim(0))


def _set(option: int, value: int) -> bool:
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and bool(mallopt(option, value))


def _of_glibc(name: str) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
