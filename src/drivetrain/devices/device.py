"""Devices: the CPU and whatever `torch.accelerator` offers; no other module asks torch about them."""

import sys
from dataclasses import dataclass
from types import ModuleType

import psutil
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.devices.cpu_half import make_half_safe, usable_half_names
from drivetrain.devices.processor import read_processor

PARTIALS_SETTINGS = (
    "allow_fp16_accumulation",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)
HALF_TYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of this machine, and how it came to be chosen."""

    torch_device: torch.device
    reason: str

    @property
    def is_cpu(self) -> bool:
        return self.torch_device.type == "cpu"

    @property
    def description(self) -> str:
        """The name of this device for people."""
        if self.is_cpu:
            threads = torch.get_num_threads()
            return f"{read_processor().name}, {threads} thread{'s' if threads > 1 else ''}"
        name = getattr(self._module, "get_device_name", None)
        return str(name(self.torch_device)) if name else str(self.torch_device)

    @property
    def total_memory_bytes(self) -> int:
        return psutil.virtual_memory().total if self.is_cpu else self._memory_info()[1]

    @property
    def free_memory_bytes(self) -> int:
        return psutil.virtual_memory().available if self.is_cpu else self._memory_info()[0]

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory this process has held on the device."""
        if self.is_cpu:
            return _peak_resident_bytes()
        peak = getattr(self._module, "max_memory_allocated", None)
        return int(peak(self.torch_device)) if peak else _peak_resident_bytes()

    @property
    def allocated_memory_bytes(self) -> int | None:
        """The memory of this process's tensors; None where torch does not count it, as on a CPU."""
        allocated = None if self.is_cpu else getattr(self._module, "memory_allocated", None)
        return None if allocated is None else int(allocated(self.torch_device))

    def forget_peak_memory(self) -> None:
        """Frees cached memory and measures the peak from now on; a CPU can do neither."""
        for name in () if self.is_cpu else ("empty_cache", "reset_peak_memory_stats"):
            getattr(self._module, name, lambda: None)()

    @property
    def wide_dtype(self) -> torch.dtype:
        """The widest floating type, for the few values that need it: rates, counts, statistics."""
        return wide_dtype(self.torch_device)

    def usable_half_types(self) -> tuple[torch.dtype, ...]:
        """The 16-bit types that work here; a CPU is tested in a child process, which may die."""
        if self.is_cpu:
            return tuple(getattr(torch, name) for name in usable_half_names())
        has_bfloat16 = getattr(self._module, "is_bf16_supported", lambda: False)()
        return HALF_TYPES if has_bfloat16 else (torch.float16,)

    def prepare_half(self, kind: torch.dtype) -> None:
        """Makes a usable 16-bit type safe; call it before the first computation in it."""
        if self.is_cpu:
            make_half_safe(str(kind).removeprefix("torch."))

    @property
    def has_half_partials(self) -> bool:
        """Whether matrix products can accumulate in 16 bits."""
        return self.torch_device.type == "cuda"

    def set_half_partials(self, allowed: bool) -> None:
        """Allows or forbids 16-bit accumulation in matrix products, if the device has the choice."""
        if not self.has_half_partials:
            return
        for name in PARTIALS_SETTINGS:
            setattr(torch.backends.cuda.matmul, name, allowed)

    @property
    def hardware(self) -> str | None:
        """A unique id of the device, if it has one: two processes may both call different devices 0."""
        properties = getattr(self._module, "get_device_properties", lambda _: None)(self.torch_device)
        identity = getattr(properties, "uuid", None)
        return None if identity is None else str(identity)

    def synchronise(self) -> None:
        """Waits until the device has finished all its work."""
        if not self.is_cpu:
            torch.accelerator.synchronize(self.torch_device)

    def seed_generators(self, seed: int) -> None:
        """Seeds torch's default generators, for models that draw from them directly."""
        torch.default_generator.manual_seed(seed)
        if not self.is_cpu:
            self._module.manual_seed(seed)

    def _memory_info(self) -> tuple[int, int]:
        """Free and total bytes; an accelerator without this information shares the memory of the host."""
        if hasattr(self._module, "mem_get_info"):
            free, total = self._module.mem_get_info(self.torch_device)
            return int(free), int(total)
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @property
    def _module(self) -> ModuleType:
        module: ModuleType = torch.get_device_module(self.torch_device)
        return module


def wide_dtype(device: torch.device) -> torch.dtype:
    """The widest floating type of a device: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def choose_device(name: str) -> Device:
    """The device that `--device` names; `auto` is the accelerator if there is one."""
    if name == "auto":
        return _automatic_device()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInputError(f"--device {name} is not a device; use one of {_available_devices()}.") from None
    if device.type != "cpu":
        _require_accelerator(device, name)
        torch.accelerator.set_device_index(device.index or 0)
    return Device(torch_device=device, reason=f"--device {name}")


def _automatic_device() -> Device:
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        return Device(
            torch_device=torch.device(accelerator.type, 0), reason="auto: an accelerator is present"
        )
    return Device(torch_device=torch.device("cpu"), reason="auto: no accelerator found")


def _require_accelerator(device: torch.device, name: str) -> None:
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if (
        current is None
        or current.type != device.type
        or (device.index or 0) >= torch.accelerator.device_count()
    ):
        raise BadInputError(f"--device {name} is not on this machine; use one of {_available_devices()}.")


def device_count() -> int:
    """The accelerators of this machine."""
    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _available_devices() -> str:
    names = ["auto", "cpu"]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        names += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    return ", ".join(f"--device {name}" for name in names)


def _peak_resident_bytes() -> int:
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    # macOS counts in bytes, Linux in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
