"""Reads NVIDIA accelerators through NVML; whatever a device or a driver does not support stays empty."""

import importlib
from collections.abc import Callable
from typing import Any

from drivetrain.monitor.readings import Accelerator, DeviceProcess

__all__ = ["Nvml", "open_nvml"]

_NO_LIBRARY = (
    "no NVIDIA accelerator can be read: the package nvidia-ml-py is missing (pip install nvidia-ml-py)"
)


class Nvml:
    """The accelerators that NVML lists; `pynvml` is the module of that name."""

    def __init__(self, pynvml: Any) -> None:
        self._nvml = pynvml
        self._driver = _text(self._ask("nvmlSystemGetDriverVersion"))

    def accelerators(self) -> list[Accelerator]:
        """All accelerators; one that was lost on the way keeps its place, with empty values."""
        return [self._accelerator(index) for index in range(self._ask("nvmlDeviceGetCount") or 0)]

    def joules(self, hardware: str) -> float | None:
        """The energy that the accelerator with this id has used since its driver was loaded."""
        identity = hardware if hardware.startswith("GPU-") else f"GPU-{hardware}"
        handle = self._ask("nvmlDeviceGetHandleByUUID", identity)
        used = None if handle is None else _number(self._ask("nvmlDeviceGetTotalEnergyConsumption", handle))
        return None if used is None else used / 1000

    def _accelerator(self, index: int) -> Accelerator:
        handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return Accelerator(index=index, driver=self._driver)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        clock = self._constant("NVML_CLOCK_SM", 1)
        return Accelerator(
            index=index,
            kind=_text(self._ask("nvmlDeviceGetName", handle)),
            id=_text(self._ask("nvmlDeviceGetUUID", handle)),
            serial=_text(self._ask("nvmlDeviceGetSerial", handle)),
            driver=self._driver,
            firmware=_text(self._ask("nvmlDeviceGetVbiosVersion", handle)),
            utilisation_percent=_number(_part(self._ask("nvmlDeviceGetUtilizationRates", handle), "gpu")),
            memory_used_bytes=_whole(_part(memory, "used")),
            memory_total_bytes=_whole(_part(memory, "total")),
            clock_mhz=_number(self._ask("nvmlDeviceGetClockInfo", handle, clock)),
            largest_clock_mhz=_number(self._ask("nvmlDeviceGetMaxClockInfo", handle, clock)),
            chip_celsius=self._chip_celsius(handle),
            memory_celsius=self._memory_celsius(handle),
            power_watts=_watts(self._ask("nvmlDeviceGetPowerUsage", handle)),
            power_limit_watts=_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            processes=self._processes(handle),
        )

    def _chip_celsius(self, handle: Any) -> float | None:
        """The newer of two functions where there is one; NVML is about to drop the older."""
        sensor = self._constant("NVML_TEMPERATURE_GPU", 0)
        newer = _number(self._ask("nvmlDeviceGetTemperatureV", handle, sensor))
        return newer if newer is not None else _number(self._ask("nvmlDeviceGetTemperature", handle, sensor))

    def _memory_celsius(self, handle: Any) -> float | None:
        field = self._constant("NVML_FI_DEV_MEMORY_TEMP", 82)
        found = self._ask("nvmlDeviceGetFieldValues", handle, [field])
        if not found or _part(found[0], "nvmlReturn") != 0:
            return None
        # A device without the sensor answers 0.
        return _number(_part(_part(found[0], "value"), "uiVal")) or None

    def _processes(self, handle: Any) -> tuple[DeviceProcess, ...]:
        """Processes that compute or draw; one that does both is listed once."""
        found: dict[int, DeviceProcess] = {}
        for kind in ("Compute", "Graphics"):
            for entry in self._ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
                pid = _whole(_part(entry, "pid"))
                if pid is not None and pid not in found:
                    found[pid] = DeviceProcess(pid=pid, memory_bytes=_whole(_part(entry, "usedGpuMemory")))
        return tuple(found[pid] for pid in sorted(found))

    def _constant(self, name: str, usual: int) -> int:
        value = getattr(self._nvml, name, usual)
        return value if isinstance(value, int) else usual

    def _ask(self, name: str, *arguments: Any) -> Any:
        """The answer of a function; None if this NVML lacks it, or the device does not support it."""
        function: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except (self._nvml.NVMLError, AttributeError, OSError, TypeError, UnicodeDecodeError):
            return None


def open_nvml(load: Callable[[str], Any] = importlib.import_module) -> tuple[Nvml | None, str | None]:
    """NVML, or None with the reason why no NVIDIA accelerator can be read."""
    try:
        pynvml = load("pynvml")
    except ImportError:
        return None, _NO_LIBRARY
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError, AttributeError) as error:
        return None, f"no NVIDIA accelerator can be read: {' '.join(str(error).split())}"
    return Nvml(pynvml), None


def _text(value: Any) -> str | None:
    """Versions of the library differ in whether they return bytes."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text.strip() or None if isinstance(text, str) else None


def _part(value: Any, name: str) -> Any:
    return getattr(value, name, None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _watts(milliwatts: Any) -> float | None:
    value = _number(milliwatts)
    return None if value is None else value / 1000
