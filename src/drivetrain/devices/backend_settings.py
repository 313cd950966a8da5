"""What torch's libraries are told for the time of a training or a measurement.

- cuDNN tries its algorithms at the first batch of a shape: shapes stay the same, so that it pays once.
- cuDNN multiplies float32 numbers as float32. By default it rounds them to TF32, 10 bits, so that 32.32 would
  be something else on a CUDA device than on a CPU; matrix products are left as they are, exact by default. A
  process that has set cuDNN's precision by torch's newer names has chosen, and keeps it.
- glibc keeps freed memory on a CPU (`allocator.py`): activations come back every update. Where memory counts
  more than time, it hands large tensors back.

Denormal numbers are left alone. They do occur: of a small network with dead units, half of all momenta are
denormal after 1600 updates. Operations on them take 10 to 40 times as long, but only the optimiser's have
them, 3 percent of an update there; and torch's switch reaches only those threads that start after it, so that
bits would depend on what a process computed before.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from drivetrain.devices.allocator import give_back_large_tensors, keep_freed_memory
from drivetrain.devices.device import PARTIALS_SETTINGS, Device

__all__ = ["training_backends"]


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
