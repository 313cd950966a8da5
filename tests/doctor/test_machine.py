import os
import shutil
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from drivetrain.doctor import machine
from drivetrain.doctor.machine import (
    check_cores,
    check_disk,
    check_load,
    check_memory,
    check_open_files,
    check_shared_memory,
)

MIB, GIB = 1 << 20, 1 << 30


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class Memory(NamedTuple):
    total: int
    available: int


def _disk_with(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(9 * GIB, 0, free))


def test_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert check_cores(tmp_path).sentence.startswith("8 of 16 cores, all used by default")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert check_cores(tmp_path).status == "ok"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS=3" in check_cores(tmp_path).sentence
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    found = check_cores(tmp_path)
    assert found.status == "note"
    assert "is limited to 2.5 of them; use --num-threads 2" in found.sentence


@pytest.mark.parametrize(("load", "status"), [(0.1, "ok"), (2.0, "ok"), (7.0, "note")])
def test_load(load: float, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil, "getloadavg", lambda: (load, 0.0, 0.0))
    found = check_load()
    assert found.status == status
    assert found.sentence.startswith(f"load average {load:.1f} on 2 cores")


@pytest.mark.parametrize(("used", "status"), [(1 * GIB, "ok"), (7 * GIB, "note"), (8 * GIB - 1, "problem")])
def test_memory_of_a_container(
    used: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(total=64 * GIB, available=60 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (tmp_path / "memory.max").write_text("max\n")
    assert check_memory(tmp_path).sentence == "60.0 GiB of 64.0 GiB free."
    (tmp_path / "memory.max").write_text(f"{8 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    assert check_memory(tmp_path).status == status


@pytest.mark.parametrize(("free", "status"), [(5 * GIB, "ok"), (GIB, "note"), (MIB, "problem")])
def test_disk(free: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _disk_with(free, monkeypatch)
    assert check_disk(tmp_path).status == status


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    found = check_disk(tmp_path / "nothing")
    assert found.status == "problem"
    assert "--output-dir" in found.sentence


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_shared_memory(tmp_path / "nothing").status == "ok"
    _disk_with(4 * GIB, monkeypatch)
    assert check_shared_memory(tmp_path).status == "ok"
    _disk_with(64 * MIB, monkeypatch)
    found = check_shared_memory(tmp_path)
    assert found.status == "note"
    assert "--num-workers 0" in found.sentence


def test_open_files() -> None:
    assert check_open_files().status in ("ok", "note")
    assert check_open_files(lambda: None).sentence == "no limit."
    assert check_open_files(lambda: 4096).status == "ok"
    assert check_open_files(lambda: 256).status == "note"
