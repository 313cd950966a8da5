"""Small benchmarks: a device's peak by tiny products, one thread."""

from collections.abc import Iterator

import pytest
import torch

from drivetrain.bench import peak


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "_SIDES", {"cpu": 64})
    monkeypatch.setattr(peak, "_COPIED_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(peak, "_LEAST_S", 0.0)
