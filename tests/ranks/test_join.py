"""Ranks that meet; the pool lends its processes, which leave their own group and join anew."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.ranks.join import _interface_towards, join, join_at, joined, leave, meet
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.rank_failure import is_consequence
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from tests.deadlines import HANG_S

ROOT = Path(__file__).parents[2]
PLACE = RankPlace(
    rank=0,
    world_size=2,
    local_rank=0,
    local_world_size=2,
    address="127.0.0.1",
    port=1,
    launcher="torchrun",
)

TORCHRUN_PROGRAM = """
import os, sys
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.join import joined

place = find_place(os.environ)
with joined(place, device="cpu", timeout_s=600) as group:
    items = group.gather((place.launcher, place.rank, group.local_rank))
if group.is_first:
    print(items)
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _new_place(group: ReplicaGroup) -> RankPlace:
    """Where the ranks of a pool meet a second time, once they have left their group."""
    port = group.from_first(_free_port())
    leave()
    size = group.size
    return replace(
        PLACE, rank=group.rank, world_size=size, local_rank=group.rank, local_world_size=size, port=port
    )


def _join_anew(group: ReplicaGroup) -> tuple[object, ...]:
    place = _new_place(group)
    with joined(place, device="cpu", timeout_s=HANG_S) as own:
        values = torch.full((3,), float(own.rank + 1))
        own.sum_(values)
        members = (own.rank, own.size, own.local_rank, own.local_size)
        answer = (members, values.tolist(), own.gather({"rank": own.rank}))
    assert not dist.is_initialized()
    return (*answer, os.environ["GLOO_SOCKET_IFNAME"])


def test_ranks_join_and_leave(rank_pool: RankPool) -> None:
    for rank, (members, values, items, interface) in enumerate(rank_pool.run(_join_anew)):
        assert members == (rank, 4, rank, 4)
        assert values == [10.0, 10.0, 10.0]
        assert items == [{"rank": other} for other in range(4)]
        assert interface in ("lo", "lo0")


class _SlowStore(Store):
    """Another one, each look into which takes a while."""

    def __init__(self, inner: Store) -> None:
        super().__init__()
        self._inner = inner

    def set(self, key: str, value: str) -> None:
        self._inner.set(key, value)

    def get(self, key: str) -> bytes:
        time.sleep(0.2)
        return self._inner.get(key)

    def wait(self, keys: list[str], *timeout: timedelta) -> None:
        time.sleep(0.2)
        self._inner.wait(keys, *timeout)


def _join_slowly_and_leave(group: ReplicaGroup, slow: int) -> None:
    place = _new_place(group)
    store = meet(place, timeout_s=HANG_S)
    join_at(_SlowStore(store) if place.rank == slow else store, place=place, device="cpu", timeout_s=HANG_S)
    leave()


@pytest.mark.parametrize("slow", [0, 1, 3])
def test_ranks_may_leave_as_soon_as_they_have_joined(rank_pool: RankPool, slow: int) -> None:
    assert rank_pool.run(_join_slowly_and_leave, slow) == [None] * 4


def _join_after_a_failure(group: ReplicaGroup) -> list[int]:
    place = _new_place(group)
    if place.rank == 1:
        with pytest.raises(RunFailedError, match="could not join the other ranks"):
            join(replace(PLACE, port=_free_port()), device="cpu", timeout_s=0.3)
    with joined(place, device="cpu", timeout_s=HANG_S) as own:
        return own.gather(own.rank)


def test_a_failed_attempt_does_not_hinder_the_next(rank_pool: RankPool) -> None:
    assert rank_pool.run(_join_after_a_failure, ranks=2) == [[0, 1], [0, 1]]


def _join_served(group: ReplicaGroup, port: int) -> list[int]:
    place = replace(_new_place(group), port=port, launcher_serves=True)
    with joined(place, device="cpu", timeout_s=HANG_S) as own:
        return own.gather(own.rank)


def test_a_launcher_may_serve_the_meeting_place(rank_pool: RankPool) -> None:
    server = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=HANG_S)
    )
    assert rank_pool.run(_join_served, server.port, ranks=2) == [[0, 1], [0, 1]]


def test_one_rank_joins_nobody() -> None:
    place = replace(PLACE, world_size=1, local_world_size=1)
    with joined(place, device="cpu") as group:
        assert group == ALONE
        assert not dist.is_initialized()


def test_a_port_in_use_is_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(BadInputError, match=r"MASTER_PORT \d+ is already in use") as caught,
    ):
        meet(replace(PLACE, port=server.getsockname()[1]), timeout_s=HANG_S)
    assert not is_consequence(caught.value)


def test_nobody_at_the_meeting_place() -> None:
    with pytest.raises(RunFailedError, match="Rank 1 cannot connect to rank 0 at") as caught:
        join(replace(PLACE, rank=1, local_rank=1, port=_free_port()), device="cpu", timeout_s=0.5)
    assert is_consequence(caught.value)


def test_a_rank_that_does_not_come() -> None:
    with pytest.raises(RunFailedError, match="Rank 0 could not join the other ranks") as caught:
        join(replace(PLACE, port=_free_port()), device="cpu", timeout_s=0.5)
    assert is_consequence(caught.value)
    leave()


def test_the_way_to_the_meeting_place_is_taken() -> None:
    assert _interface_towards("127.0.0.1") in ("lo", "lo0")
    assert _interface_towards("nowhere.invalid") is None


def _be_late(group: ReplicaGroup, timeout_s: float, folder: Path) -> str:
    part, is_over = group.parts_of(2), folder / str(group.rank // 2)
    group.set_timeout(timeout_s)
    try:
        if part.rank == 0 or _did_not_come(is_over):
            part.barrier()
    except RuntimeError as error:
        is_over.touch()
        return "Timed out" if is_consequence(error) and "Timed out" in str(error) else str(error)
    return "late" if is_over.exists() else "met"


def _did_not_come(path: Path) -> bool:
    """Waits for a file, but not as long as the 300 s that the parts of a group were made with."""
    deadline_s = time.monotonic() + 150.0
    while not path.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return not path.exists()


def _be_late_but_come(group: ReplicaGroup) -> str:
    if group.rank == 1:
        time.sleep(1.0)
    group.barrier()
    return "met"


def test_a_short_timeout_holds_for_parts_that_were_there_before(rank_pool: RankPool, tmp_path: Path) -> None:
    """Who is late waits for the others to give up; if they do not, it meets them after all."""
    assert rank_pool.run(_be_late, 0.5, tmp_path) == ["Timed out", "late", "Timed out", "late"]


def test_without_it_ranks_wait(rank_pool: RankPool) -> None:
    assert rank_pool.run(_be_late_but_come, ranks=2) == ["met", "met"]


def _fail_inside(group: ReplicaGroup) -> str:
    place = _new_place(group)
    try:
        with joined(place, device="cpu", timeout_s=HANG_S) as own:
            own.barrier()
            if own.rank == 1:
                raise ValueError("the cause")
            own.barrier()
    except ValueError:
        # Still alive: what the others notice is that this rank has left.
        time.sleep(1.0)
        return "cause"
    except RuntimeError as error:
        return "consequence" if is_consequence(error) else str(error)
    return "nothing"


def test_who_fails_leaves_at_once_and_the_others_notice(rank_pool: RankPool) -> None:
    assert rank_pool.run(_fail_inside, ranks=3) == ["consequence", "cause", "consequence"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1"), True),
        (RuntimeError("Application timeout caused pair closure"), True),
        (dist.DistBackendError("NCCL error: remote process exited"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("Connection closed by peer"), False),
        (BadInputError("Connection closed by peer"), False),
    ],
)
def test_consequences(error: Exception, expected: bool) -> None:
    assert is_consequence(error) is expected
    wrapped = RunFailedError("The update failed.")
    wrapped.__cause__ = error
    assert is_consequence(wrapped) is expected


def test_ranks_that_torchrun_starts_join(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TORCHRUN_PROGRAM)
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(_free_port())]
    done = subprocess.run(
        [sys.executable, *command, str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.strip() == "[('torchrun', 0, 0), ('torchrun', 1, 1)]", done.stderr
