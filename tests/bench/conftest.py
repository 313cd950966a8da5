"""Small benchmarks: a device's peak by tiny products, one thread."""

import pytest

from drivetrain.bench import machine as peak


@pytest.fixture
def small_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "_SIDES", {"cpu": 64})
    monkeypatch.setattr(peak, "_COPIED_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(peak, "_LEAST_S", 0.0)
