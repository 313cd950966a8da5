from pathlib import Path

import pytest
import torch

from drivetrain.devices import device as devices
from drivetrain.devices.device import Device
from drivetrain.doctor import accelerators
from drivetrain.doctor.accelerators import check_accelerators


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where NVIDIA's driver would say its version; there is none yet."""
    path = tmp_path / "version"
    monkeypatch.setattr(accelerators, "_NVIDIA_DRIVER", path)
    monkeypatch.setattr(accelerators, "_AMD_DRIVER", tmp_path / "kfd")
    return path


def test_without_one(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    (found,) = check_accelerators()
    assert (found.status, found.sentence) == ("ok", "none; --device auto uses the CPU.")
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n")
    (found,) = check_accelerators()
    assert found.status == "note"
    assert "an NVIDIA driver is loaded" in found.sentence


def test_each_is_tried(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for two accelerators, of which the second does not compute."""

    def choose(name: str) -> Device:
        if name.endswith(":1"):
            raise RuntimeError("no kernel image\nis available")
        return Device(torch_device=torch.device("cpu"), reason="test")

    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n")
    monkeypatch.setattr(devices, "choose_device", choose)
    monkeypatch.setattr(Device, "usable_half_types", lambda device: (torch.bfloat16,))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    first, second = check_accelerators()
    assert (first.topic, first.status) == ("cpu:0", "ok")
    assert "free, driver 550.54.15; --precision auto means 16.32 (bfloat16)." in first.sentence
    assert (second.status, second.topic) == ("note", "cpu:1")
    assert "(no kernel image is available); --device cpu works." in second.sentence
