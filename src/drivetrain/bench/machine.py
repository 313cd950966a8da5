"""Describes the machine of a measurement, and measures the peak speed of its device."""

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

# Large enough to saturate the device (and, for the copy, to exceed its caches), small enough that a few calls
# take well under a second.
_SIDES = {"cpu": 2048, "other": 8192}
_COPIED_BYTES = {"cpu": 256 * 2**20, "other": 2 * 2**30}
# The best of at least so many calls and so many seconds counts: single calls scatter.
_LEAST_S = 0.3
_LEAST_CALLS = 3


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """The device, the number of CPU cores, and the versions of torch and Python.

    The thread count is missing on purpose: it is a setting, because the ranks of a machine share its cores.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """Peak speed of a matrix product in `dtype`, and of a copy (bytes read plus bytes written)."""

    dtype: str
    tflops: float
    copy_gb_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


def measure_peak(device: Device, *, dtype: torch.dtype) -> DevicePeak:
    """Times large matrix products and copies on an otherwise idle device; the best of each counts."""
    kind = "cpu" if device.is_cpu else "other"
    side = _SIDES[kind]
    # Random numbers: products of constants need less power, and some devices then run at a higher clock.
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
    """Lets matrix products use TF32 if convolutions do, so that the peak matches what a model can reach.

    torch allows TF32 for float32 convolutions by default, but not for matrix products.
    """
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
