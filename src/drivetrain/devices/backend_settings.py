"""Settings of cuDNN and of the memory allocator during a training or a measurement.

- cuDNN tries its algorithms at the first batch of each shape. Shapes stay the same, so it pays once.
- With --deterministic it does not try them, because every process may choose others, and the bits of a sum
  depend on the algorithm. Operations then use deterministic algorithms (`determinism.py`).
- cuDNN computes float32 convolutions in float32. By default it rounds inputs to TF32 (10 bits of mantissa),
  and 32.32 would mean something else on a CUDA device than on a CPU. Matrix products are exact by default and
  are left alone. If the process has set the precision of cuDNN by torch's newer names, it is kept.
- On CUDA, the segments of torch's allocator grow instead of standing beside each other. On an H200 a U-Net
  then reserves 6 % more than its tensors use, otherwise 40 %. PYTORCH_CUDA_ALLOC_CONF goes before.
- On a CPU, glibc keeps freed memory, as activations of the same sizes come back in every update. If memory
  matters more than time, it returns large tensors to the system instead.

Denormal numbers are not flushed to zero. They do occur: in a small network with dead units, half of all
momenta are denormal after 1600 updates. Operations on them take 10 to 40 times as long, but only the
optimiser meets them, which is 3 percent of an update there. And torch's switch affects only threads that
start after it, so results would depend on what a process computed before.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from drivetrain.devices.determinism import deterministic_algorithms
from drivetrain.devices.device import PARTIALS_SETTINGS, Device

__all__ = [
    "give_back_freed_memory",
    "give_back_large_tensors",
    "grow_segments",
    "keep_freed_memory",
    "training_backends",
]

# Option numbers of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
# The largest C int, the type that mallopt takes: the heap is practically never trimmed.
_LARGEST_THRESHOLD = 2**31 - 1
# The default of glibc; it undoes the 0 that `keep_freed_memory` may have set.
_MOST_MAPPED = 65536
# What users set up the allocator of CUDA with, by its older and its newer name.
_ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# Smaller blocks stay in the heap: mapping and unmapping them would cost more than it saves.
_LARGE_BYTES = 2**18


# The two settings of glibc's allocator trade memory against time. Kept memory fragments: before glibc 2.38
# the place of a freed tensor is too small for another one of the same size once small objects have settled
# around it, and the heap of a training may grow to twice what is in use and more. Memory that is returned
# does not fragment, but every large tensor causes page faults again, which can double the time of an update.


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for reuse; False if the allocator is not glibc."""
    return _set(_M_MMAP_MAX, 0) and _set(_M_TRIM_THRESHOLD, _LARGEST_THRESHOLD)


def give_back_large_tensors() -> bool:
    """Makes glibc return large tensors to the system at once; False if the allocator is not glibc."""
    return _set(_M_MMAP_MAX, _MOST_MAPPED) and _set(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def give_back_freed_memory() -> bool:
    """Returns memory that is free now to the system, between two parts of a run; False if none was."""
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
def training_backends(
    device: Device, *, saves_memory: bool = False, is_deterministic: bool = False
) -> Iterator[None]:
    """Applies the settings inside the block and restores those that can be restored."""
    cudnn = torch.backends.cudnn
    tries_algorithms, rounds = cudnn.benchmark, _rounds_to_tf32()
    partials = {name: getattr(torch.backends.cuda.matmul, name) for name in PARTIALS_SETTINGS}
    if device.is_cpu and saves_memory:
        give_back_large_tensors()
    elif device.is_cpu:
        keep_freed_memory()
    grow_segments(device)
    cudnn.benchmark = not is_deterministic
    if rounds:
        cudnn.allow_tf32 = False
    try:
        with deterministic_algorithms() if is_deterministic else nullcontext():
            yield
    finally:
        cudnn.benchmark = tries_algorithms
        if rounds:
            cudnn.allow_tf32 = True
        for name, value in partials.items():
            setattr(torch.backends.cuda.matmul, name, value)


def grow_segments(device: Device) -> bool:
    """Lets the allocator's segments grow; False where it cannot, or where the user has set it up."""
    is_possible = device.torch_device.type == "cuda" and sys.platform == "linux" and torch.version.hip is None
    if not is_possible or any(name in os.environ for name in _ALLOCATOR_VARIABLES):
        return False
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    return True


def _rounds_to_tf32() -> bool:
    """Whether cuDNN rounds to TF32 by default; torch refuses to read this name once the newer one was set."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return False
