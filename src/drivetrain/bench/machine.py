"""The machine that a measurement was made on, and what its device can do at best."""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch

from drivetrain.devices.device import Device

__all__ = ["DevicePeak", "describe_machine", "measure_peak"]

_SIDES = {"cpu": 2048, "other": 8192}
_COPIED_BYTES = {"cpu": 256 * 2**20, "other": 2 * 2**30}
_LEAST_S = 0.3
_LEAST_CALLS = 3


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """The device, the cores beside it, and the versions that computed.

    How many threads were in use is a setting: ranks of one machine share its cores out.
    """
    import torch

    from drivetrain.devices.device import choose_device
    from drivetrain.devices.processor import read_processor

    chosen = choose_device(device)
    return {
        **({"cpu": read_processor().name} if chosen.is_cpu else {"device": chosen.description}),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


# What a device can do at best: a large matrix product, and a copy.


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """Products of one type, and bytes read and written by a copy, per second."""

    dtype: str
    tflops: float
    copy_gb_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


def measure_peak(device: Device, *, dtype: torch.dtype) -> DevicePeak:
    """The best of some large products and copies on a device that does nothing else."""
    kind = "cpu" if device.is_cpu else "other"
    side = _SIDES[kind]
    # Of ones, products cost less power than of any real numbers, and some devices run faster then.
    matrix = torch.randn(side, side, device=device.torch_device).to(dtype)
    product = torch.empty_like(matrix)
    with _products_as_convolutions(device, dtype):
        product_s = _best_s(device, lambda: torch.mm(matrix, matrix, out=product))
    size = min(_COPIED_BYTES[kind], device.free_memory_bytes // 8)
    source = torch.ones(size, dtype=torch.uint8, device=device.torch_device)
    target = torch.empty_like(source)
    copy_s = _best_s(device, lambda: target.copy_(source))
    return DevicePeak(
        dtype=str(dtype).removeprefix("torch."),
        tflops=2 * side**3 / product_s / 1e12,
        copy_gb_per_second=2 * size / copy_s / 1e9,
    )


def _best_s(device: Device, work: Callable[[], object]) -> float:
    work()
    best_s, spent_s, calls = float("inf"), 0.0, 0
    while spent_s < _LEAST_S or calls < _LEAST_CALLS:
        device.synchronise()
        started_s = perf_counter()
        work()
        device.synchronise()
        took_s = perf_counter() - started_s
        best_s, spent_s, calls = min(best_s, took_s), spent_s + took_s, calls + 1
    return best_s


@contextmanager
def _products_as_convolutions(device: Device, dtype: torch.dtype) -> Iterator[None]:
    """Convolutions in float32 may use TF32 where matrix products do not by default."""
    shortens = device.torch_device.type == "cuda" and dtype == torch.float32
    if not shortens or not torch.backends.cudnn.allow_tf32:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
