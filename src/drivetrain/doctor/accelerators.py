"""Checks the accelerators: those that torch can use, and drivers without a device that torch sees."""

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from drivetrain.doctor.finding import Finding, gibibytes, note, ok

if TYPE_CHECKING:
    from drivetrain.devices.device import Device

__all__ = ["check_accelerators"]

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_AMD_DRIVER = Path("/dev/kfd")


def check_accelerators() -> list[Finding]:
    """One finding per accelerator, or the reason why there is none."""
    import torch

    from drivetrain.devices.device import choose_device

    if not torch.accelerator.is_available():
        return [_none(torch)]
    kind = str(choose_device("auto").torch_device.type)
    names = (f"{kind}:{index}" for index in range(torch.accelerator.device_count()))
    found = [_check(name, choose=partial(choose_device, name)) for name in names]
    torch.accelerator.set_device_index(0)
    return found


def _check(name: str, *, choose: "partial[Device]") -> Finding:
    import torch

    try:
        device = choose()
        ones = torch.ones(64, 64, device=device.torch_device)
        (ones @ ones).sum().item()
    except RuntimeError as error:
        why = " ".join(str(error).split())[:200]
        return note(name, f"a matrix product fails on it ({why}); --device cpu works.")
    has_bfloat16 = torch.bfloat16 in device.usable_half_types()
    precision = "16.32 (bfloat16)" if has_bfloat16 else "32.32, because it has no bfloat16"
    return ok(
        name,
        f"{device.description}, {gibibytes(device.free_memory_bytes)} of "
        f"{gibibytes(device.total_memory_bytes)} free{_driver()}; --precision auto means {precision}.",
    )


def _driver() -> str:
    """The version of the NVIDIA driver, as ", driver 550.54.15"; empty if none is loaded."""
    try:
        first = _NVIDIA_DRIVER.read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""
    return next((f", driver {word}" for word in first.split() if word[:1].isdigit() and "." in word), "")


def _none(torch: ModuleType) -> Finding:
    driver = "an NVIDIA" if _NVIDIA_DRIVER.exists() else "an AMD" if _AMD_DRIVER.exists() else None
    if driver is None:
        return ok("accelerator", "none; --device auto uses the CPU.")
    return note(
        "accelerator",
        f"{driver} driver is loaded, but torch {torch.__version__} sees no device; install a build of torch "
        "for it, or a newer driver. Until then --device auto uses the CPU.",
    )
