"""Reading NVML: everything, parts that a device does not support, functions that are missing, and no NVML."""

from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.monitor.nvml import Nvml, open_nvml
from drivetrain.monitor.readings import Accelerator, DeviceProcess


class NVMLError(Exception):
    """As the library's own."""


def _refuse(*_: Any) -> Any:
    raise NVMLError("Not Supported")


def _library(**changes: Any) -> Any:
    """A module like pynvml with one H200; None removes a function."""
    functions: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"550.54.15",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda _: "GPU-1",
        "nvmlDeviceGetSerial": lambda _: "165",
        "nvmlDeviceGetVbiosVersion": lambda _: "96.00",
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=98, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=10, total=20, free=10),
        "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1830}[kind],
        "nvmlDeviceGetMaxClockInfo": lambda _, kind: {1: 1980}[kind],
        "nvmlDeviceGetTemperatureV": lambda _, sensor: {0: 54}[sensor],
        "nvmlDeviceGetFieldValues": lambda _, fields: [_field(61) for _ in fields],
        "nvmlDeviceGetPowerUsage": lambda _: 512345,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700000,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [
            SimpleNamespace(pid=12, usedGpuMemory=5),
            SimpleNamespace(pid=11, usedGpuMemory=None),
        ],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [SimpleNamespace(pid=12, usedGpuMemory=5)],
        **changes,
    }
    return SimpleNamespace(**{name: found for name, found in functions.items() if found is not None})


def _field(value: int, *, status: int = 0) -> Any:
    return SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=value))


def _only(library: Any) -> Accelerator:
    (found,) = Nvml(library).accelerators()
    return found


def test_everything_is_read() -> None:
    assert _only(_library()) == Accelerator(
        index=0,
        kind="NVIDIA H200",
        id="GPU-1",
        serial="165",
        driver="550.54.15",
        firmware="96.00",
        utilisation_percent=98.0,
        memory_used_bytes=10,
        memory_total_bytes=20,
        clock_mhz=1830.0,
        largest_clock_mhz=1980.0,
        chip_celsius=54.0,
        memory_celsius=61.0,
        power_watts=512.345,
        power_limit_watts=700.0,
        processes=(DeviceProcess(pid=11), DeviceProcess(pid=12, memory_bytes=5)),
    )


@pytest.mark.parametrize("without", [_refuse, None])
def test_a_device_that_supports_nothing_keeps_its_place(without: Any) -> None:
    basic = ("NVMLError", "nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
    changes = {name: without for name in vars(_library()) if name not in basic}
    assert _only(_library(**changes)) == Accelerator(index=0)


def test_a_device_that_was_lost_keeps_its_place() -> None:
    assert _only(_library(nvmlDeviceGetHandleByIndex=_refuse)) == Accelerator(index=0, driver="550.54.15")


@pytest.mark.parametrize("newer", [_refuse, None])
def test_an_older_library_tells_the_temperature_in_its_own_way(newer: Any) -> None:
    library = _library(
        nvmlDeviceGetTemperatureV=newer, nvmlDeviceGetTemperature=lambda _, sensor: 50 + sensor
    )
    assert _only(library).chip_celsius == 50.0


@pytest.mark.parametrize("answer", [[], [_field(0)], [_field(61, status=3)]])
def test_a_device_without_a_sensor_at_its_memory_tells_no_temperature(answer: list[Any]) -> None:
    assert _only(_library(nvmlDeviceGetFieldValues=lambda *_: answer)).memory_celsius is None


def test_a_list_of_devices_that_fails_is_empty() -> None:
    assert Nvml(_library(nvmlDeviceGetCount=_refuse)).accelerators() == []


def test_the_library_may_be_missing() -> None:
    def load(name: str) -> Any:
        raise ImportError(name)

    nvml, note = open_nvml(load)
    assert nvml is None
    assert note is not None
    assert "pip install nvidia-ml-py" in note


def test_the_driver_may_be_missing() -> None:
    nvml, note = open_nvml(lambda _: _library(nvmlInit=_refuse))
    assert (nvml, note) == (None, "no NVIDIA accelerator can be read: Not Supported")
    assert open_nvml(lambda _: _library())[0] is not None


def test_the_energy_of_an_accelerator_in_joules() -> None:
    asked: list[str] = []

    def handle(identity: str) -> str:
        asked.append(identity)
        return identity

    library = _library(nvmlDeviceGetHandleByUUID=handle, nvmlDeviceGetTotalEnergyConsumption=lambda _: 2500)
    assert Nvml(library).joules("12ab") == 2.5
    assert Nvml(library).joules("GPU-12ab") == 2.5
    assert asked == ["GPU-12ab", "GPU-12ab"]
    assert Nvml(_library(nvmlDeviceGetHandleByUUID=handle)).joules("12ab") is None
