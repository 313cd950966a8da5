"""Ranks of one host see the same memory; nothing stays behind, however a rank ends."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.ranks.shared_memory import Layout, shared_arrays

LAYOUTS: list[Layout] = [((4, 3), np.dtype(np.uint8)), ((4,), np.dtype(np.int64))]
MEMORY_FILES = Path("/dev/shm")


def _fill(arrays: list[NDArray[Any]]) -> None:
    pixels, labels = arrays
    pixels[...] = np.arange(12, dtype=np.uint8).reshape(4, 3)
    labels[...] = np.arange(4)


def _shared(group: ReplicaGroup) -> tuple[list[int], list[int], int, int]:
    """What a rank sees, what it sees after the first one has written, and its mapped files."""
    fills: list[int] = []

    def fill(arrays: list[NDArray[Any]]) -> None:
        fills.append(1)
        _fill(arrays)

    pixels, labels = shared_arrays(LAYOUTS, group=group, fill=fill)
    before = pixels.flatten().tolist()
    group.barrier()
    if group.is_first:
        labels[0] = 77
    group.barrier()
    mapped = sum("memfd:drivetrain-data" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return before, labels.tolist(), len(fills), mapped


def test_one_rank_fills_and_all_see_the_same_memory(rank_pool: RankPool) -> None:
    files_before = _memory_files()
    found = rank_pool.run(_shared, ranks=4)
    assert [fills for _, _, fills, _ in found] == [1, 0, 0, 0]
    for before, labels, _, mapped in found:
        assert before == list(range(12))
        assert labels == [77, 1, 2, 3]
        assert mapped >= 2
    assert _memory_files() <= files_before


def _mapped() -> int:
    # What earlier work of the same rank has left lying about does not count.
    gc.collect()
    return sum("memfd:drivetrain-data" in line for line in Path("/proc/self/maps").read_text().splitlines())


def _left_mapped(group: ReplicaGroup) -> tuple[int, int]:
    before = _mapped()
    arrays = shared_arrays(LAYOUTS, group=group, fill=_fill)
    while_held = _mapped() - before
    del arrays
    return while_held, _mapped() - before


def test_memory_that_nobody_holds_is_given_back(rank_pool: RankPool) -> None:
    for while_held, afterwards in rank_pool.run(_left_mapped, ranks=2):
        assert while_held > 0
        assert afterwards == 0


def test_alone_it_is_ordinary_memory() -> None:
    pixels, labels = shared_arrays(LAYOUTS, group=ALONE, fill=_fill)
    assert pixels.flatten().tolist() == list(range(12))
    assert labels.tolist() == [0, 1, 2, 3]
    assert pixels.flags.owndata


KILLED = """
import os, signal
import numpy as np
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.ranks.shared_memory import shared_arrays

class Pair(ReplicaGroup):
    def gather(self, item):
        return [item, item]

def fill(arrays):
    arrays[0][...] = 1
    print("filling", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

shared_arrays([((2**20,), np.dtype(np.uint8))], group=Pair(rank=0, size=2), fill=fill)
"""


def test_a_kill_while_memory_is_filled_leaves_nothing(tmp_path: Path) -> None:
    files_before = _memory_files()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, env=environment, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == "filling\n"
    assert _memory_files() <= files_before
    assert list(tmp_path.iterdir()) == []


def _memory_files() -> set[str]:
    """What this user has lying in memory by name, the files of semaphores left out."""
    own = psutil.Process().uids().real
    return {
        entry.name
        for entry in MEMORY_FILES.glob("*")
        if entry.lstat().st_uid == own and "drivetrain" in entry.name
    }
