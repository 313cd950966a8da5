"""What torch's libraries and the allocator are told for the time of a training or a measurement.

- cuDNN tries its algorithms at the first batch of a shape: shapes stay the same, so that it pays once.
- cuDNN multiplies float32 numbers as float32. By default it rounds them to TF32, 10 bits, so that 32.32 would
  be something else on a CUDA device than on a CPU; matrix products are left as they are, exact by default. A
  process that has set cuDNN's precision by torch's newer names has chosen, and keeps it.
- glibc keeps freed memory on a CPU: activations come back every update. Where memory counts
  more than time, it hands large tensors back.

Denormal numbers are left alone. They do occur: of a small network with dead units, half of all momenta are
denormal after 1600 updates. Operations on them take 10 to 40 times as long, but only the optimiser's have
them, 3 percent of an update there; and torch's switch reaches only those threads that start after it, so that
bits would depend on what a process computed before.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from drivetrain.devices.device import PARTIALS_SETTINGS, Device

__all__ = ["give_back_freed_memory", "give_back_large_tensors", "keep_freed_memory", "training_backends"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_LARGEST_THRESHOLD = 2**31 - 1
_MOST_MAPPED = 65536
_LARGE_BYTES = 2**18


# What glibc's allocator does with freed memory on a CPU: kept for the next update, or given back.
#
# Kept memory has gaps. Before version 2.38 the place of a freed tensor is too small for another one of the
# same size once small objects have settled around it, so that the heap of a training may grow to twice
# what is in use and more. Memory given back has none, and every large tensor faults in anew, which can
# double the time of an update.


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


@contextmanager
def training_backends(device: Device, *, saves_memory: bool = False) -> Iterator[None]:
    """The settings inside the block; what can be taken back is as it was after it."""
    cudnn = torch.backends.cudnn
    tries_algorithms, rounds = cudnn.benchmark, _rounds_to_tf32()
    partials = {name: getattr(torch.backends.cuda.matmul, name) for name in PARTIALS_SETTINGS}
    if device.is_cpu and saves_memory:
        give_back_large_tensors()
    elif device.is_cpu:
        keep_freed_memory()
    cudnn.benchmark = True
    if rounds:
        cudnn.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.benchmark = tries_algorithms
        if rounds:
            cudnn.allow_tf32 = True
        for name, value in partials.items():
            setattr(torch.backends.cuda.matmul, name, value)


def _rounds_to_tf32() -> bool:
    """Whether cuDNN does, and nobody has chosen that: the older name cannot be read then."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return False
