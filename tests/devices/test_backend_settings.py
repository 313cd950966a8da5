"""What torch's libraries are told, and that it is taken back."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from drivetrain.devices import backend_settings
from drivetrain.devices.backend_settings import training_backends
from drivetrain.devices.device import Device

CPU = Device(torch_device=torch.device("cpu"), reason="test")
CUDA = Device(torch_device=torch.device("cuda"), reason="test")


@pytest.fixture(autouse=True)
def as_torch_begins() -> Iterator[None]:
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.allow_tf32 = True


def settings() -> tuple[bool, bool]:
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_float32_is_float32_inside_and_everything_as_it_was_after(device: Device) -> None:
    torch.backends.cudnn.benchmark = False
    with training_backends(device):
        assert settings() == (True, False)
    assert settings() == (False, True)
    with pytest.raises(KeyError), training_backends(device):
        raise KeyError
    assert settings() == (False, True)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", said.append)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    return said


def test_segments_of_cuda_grow(told: list[str]) -> None:
    with training_backends(CPU):
        assert told == []
    with training_backends(CUDA):
        assert told == ["expandable_segments:True"]


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_the_allocator_that_a_user_has_set_up_stays(
    name: str, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "backend:native")
    with training_backends(CUDA):
        assert told == []


def test_what_a_user_has_set_stays() -> None:
    torch.backends.cudnn.allow_tf32 = False
    with training_backends(CPU):
        assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    cudnn: Any = torch.backends.cudnn
    cudnn.conv.fp32_precision = "ieee"
    with training_backends(CPU):
        assert cudnn.rnn.fp32_precision == "tf32"
    assert cudnn.conv.fp32_precision == "ieee"


def test_only_a_cpu_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(backend_settings, "keep_freed_memory", lambda: kept.append(True))
    with training_backends(CUDA):
        assert kept == []
    with training_backends(CPU):
        assert kept == [True]


@pytest.mark.parametrize(
    ("device", "saves_memory", "expected"),
    [
        (CPU, False, ["keep_freed_memory"]),
        (CPU, True, ["give_back_large_tensors"]),
        (CUDA, False, []),
        (CUDA, True, []),
    ],
)
def test_what_becomes_of_freed_memory(
    device: Device, saves_memory: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("keep_freed_memory", "give_back_large_tensors"):
        monkeypatch.setattr(backend_settings, name, lambda name=name: called.append(name))
    with training_backends(device, saves_memory=saves_memory):
        assert called == expected
