"""Hosts are told apart by more than their names."""

import socket
from pathlib import Path
from unittest.mock import patch

import pytest

from drivetrain.ranks import host
from drivetrain.ranks.host import host_key
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup


def _own_key() -> str:
    return host_key.__wrapped__()


def _two_names(group: ReplicaGroup) -> tuple[int, ...]:
    """Each two neighbours think that they are on a host of their own."""
    host_key.cache_clear()
    try:
        with patch("socket.gethostname", return_value=f"host-{group.rank // 2}"):
            counted = group.counted_by_host()
    finally:
        host_key.cache_clear()
    return counted.rank, counted.size, counted.local_rank, counted.local_size


def _key(group: ReplicaGroup) -> str:
    return host_key()


def test_processes_of_one_host_have_one_key(rank_pool: RankPool) -> None:
    assert rank_pool.run(_key, ranks=2) == [host_key()] * 2


def test_the_members_of_each_host_are_counted(rank_pool: RankPool) -> None:
    assert rank_pool.run(_two_names) == [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)]


@pytest.mark.parametrize("changed", ["_BOOT", "_PROCESSES", "_MEMORY_FILES"])
def test_one_name_may_stand_for_several_hosts(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, processes, memory = tmp_path / "boot", tmp_path / "pid", tmp_path / "shm"
    other = {"_BOOT": tmp_path / "boot2", "_PROCESSES": tmp_path / "pid2", "_MEMORY_FILES": tmp_path}
    boot.write_text("1234\n")
    other["_BOOT"].write_text("5678\n")
    processes.symlink_to("pid:[1]")
    other["_PROCESSES"].symlink_to("pid:[2]")
    memory.mkdir()
    for name, path in (("_BOOT", boot), ("_PROCESSES", processes), ("_MEMORY_FILES", memory)):
        monkeypatch.setattr(host, name, path)
    before = _own_key()
    assert _own_key() == before
    assert "1234" in before.split()
    assert "pid:[1]" in before.split()
    monkeypatch.setattr(host, changed, other[changed])
    assert _own_key() != before
    monkeypatch.setattr(host, changed, tmp_path / "nowhere")
    assert _own_key() != before


def test_without_marks_the_name_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_BOOT", "_PROCESSES", "_MEMORY_FILES"):
        monkeypatch.setattr(host, name, tmp_path / "nowhere")
    assert _own_key() == socket.gethostname()
