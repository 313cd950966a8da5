"""Groups of ranks and their collectives, the time spent waiting for them, and the groups of a layout."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain.ranks.connections import noting_connections
from drivetrain.ranks.host import host_key

__all__ = ["ALL_ALONE", "ALONE", "RankGroups", "ReplicaGroup", "WaitClock", "split_ranks"]

# Finished events are read now and then; otherwise they would pile up while the host does not synchronise.
_MOST_PENDING = 256


class WaitClock:
    """Adds up the time spent waiting for collectives, without synchronising the device.

    On a CPU it is the time of this process, on an accelerator that of the device's stream.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._pending: deque[tuple[torch.Event, torch.Event]] = deque()
        self._is_complete = True

    def timed(self, wait: Callable[[], object], *, device: torch.device) -> Callable[[], object]:
        """The same wait, with its time added to this clock."""
        return lambda: self._on_host(wait) if device.type == "cpu" else self._on_stream(wait, device)

    def read(self) -> float | None:
        """Seconds so far; None if the device has no timed events.

        On an accelerator call it only after the device was synchronised: events must have completed.
        """
        while self._pending:
            self._read_oldest()
        return self._seconds if self._is_complete else None

    def _on_host(self, wait: Callable[[], object]) -> None:
        started = time.perf_counter()
        wait()
        self._seconds += time.perf_counter() - started

    def _on_stream(self, wait: Callable[[], object], device: torch.device) -> None:
        """Times a wait of the stream by an event before and after it, read once both have completed."""
        try:
            begun, ended = (torch.Event(device, enable_timing=True) for _ in range(2))
            begun.record()
        except RuntimeError:
            # Not every backend supports timed events.
            self._is_complete = False
            wait()
            return
        wait()
        ended.record()
        self._pending.append((begun, ended))
        while len(self._pending) > _MOST_PENDING and self._pending[0][1].query():
            self._read_oldest()

    def _read_oldest(self) -> None:
        begun, ended = self._pending.popleft()
        self._seconds += begun.elapsed_time(ended) / 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """A group of ranks, seen from one member.

    Every method except `send` and `receive_` is a collective: all members must call it, in the same order. In
    a group of one they do nothing. `local_rank` and `local_size` count the members on this host; `waits`
    measures the time spent waiting for all-reduces.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    process_group: dist.ProcessGroup | None = None
    waits: WaitClock = field(default_factory=WaitClock, compare=False, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this member is rank 0, which writes files, prints and decides."""
        return self.rank == 0

    def begin_sum(self, values: Tensor) -> Callable[[], object]:
        """Starts an all-reduce (sum) of `values` in place; the function returned waits for it."""
        if self.size == 1:
            return _nothing
        work = dist.all_reduce(values, group=self.process_group, async_op=True)
        assert work is not None
        return self.waits.timed(work.wait, device=values.device)

    def sum_(self, values: Tensor) -> None:
        """All-reduces `values` (sum) in place."""
        self.begin_sum(values)()

    def broadcast_(self, values: Tensor) -> None:
        """Copies the values of the first member to all others, in place."""
        if self.size > 1:
            dist.broadcast(values, group=self.process_group, group_src=0)

    def send(self, values: Tensor, *, to: int) -> None:
        """Sends values to one other member; returns when they may be changed again."""
        dist.send(values, group=self.process_group, group_dst=to)

    def receive_(self, values: Tensor, *, sender: int) -> None:
        """Receives values from one other member, in place."""
        dist.recv(values, group=self.process_group, group_src=sender)

    def gather(self, item: Any) -> list[Any]:
        """The items of all members, in rank order; pickled, so only for few and small ones."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        dist.all_gather_object(items, item, group=self.process_group)
        return items

    def from_first(self, item: Any) -> Any:
        """The first member's item."""
        return self.gather(item)[0]

    def barrier(self) -> None:
        """Waits for everybody."""
        if self.size > 1:
            # dist.barrier would run on the accelerator if there is one; objects are gathered by gloo.
            self.gather(None)

    def parts_of(self, size: int) -> "ReplicaGroup":
        """Splits the group into parts of `size` consecutive members and returns the part of this one."""
        if size == 1 or self.size == 1:
            return ALONE
        if size == self.size:
            return self.timed_apart()
        first = self.rank - self.rank % size
        return self._part(range(first, first + size))

    def every(self, step: int) -> "ReplicaGroup":
        """The part made of every `step`-th member that contains this one."""
        members = range(self.rank % step, self.size, step)
        return ALONE if len(members) == 1 else self._part(members)

    def _part(self, members: Sequence[int]) -> "ReplicaGroup":
        ranks = [self._global_rank(member) for member in members]
        # By default every rank of the world must call new_group. With local synchronisation only the members
        # do, so that a part can be split again.
        with noting_connections():
            group = dist.new_group(ranks, timeout=self._timeout, use_local_synchronization=True)
        own = members.index(self.rank)
        return ReplicaGroup(rank=own, size=len(members), process_group=group).counted_by_host()

    def timed_apart(self) -> "ReplicaGroup":
        """The same members with a wait clock of their own."""
        return self if self.size == 1 else replace(self, waits=WaitClock())

    def counted_by_host(self) -> "ReplicaGroup":
        """The same members, with `local_rank` and `local_size` set; a collective."""
        hosts = self.gather(host_key())
        host = hosts[self.rank]
        return replace(self, local_rank=hosts[: self.rank].count(host), local_size=hosts.count(host))

    def set_timeout(self, seconds: float) -> None:
        """Sets the collective timeout of this group and of every other group of the process."""
        # torch has no public way to change the timeout of an existing group.
        if self.size > 1:
            for group in list(dist.distributed_c10d._world.pg_map):
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)

    @property
    def _timeout(self) -> timedelta:
        group = self.process_group or dist.group.WORLD
        assert group is not None
        timeout: timedelta = group._get_backend(torch.device("cpu")).options._timeout
        return timeout

    def _global_rank(self, rank: int) -> int:
        group = self.process_group or dist.group.WORLD
        assert group is not None
        return dist.get_global_rank(group, rank)


def _nothing() -> None:
    return None


ALONE = ReplicaGroup()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """The groups of a rank: all ranks, those with the same stages, and those of its own replica.

    `replicas` holds the ranks with the same stages, one of each replica; `devices` the ranks of one replica.
    Ranks are numbered rank = replica x devices per replica + device.
    """

    world: ReplicaGroup = ALONE
    replicas: ReplicaGroup = ALONE
    devices: ReplicaGroup = ALONE


ALL_ALONE = RankGroups()


def split_ranks(world: ReplicaGroup, *, devices_per_replica: int) -> RankGroups:
    """Makes the groups of this rank; a collective."""
    if world.size == 1 or devices_per_replica == 1:
        return RankGroups(world=world, replicas=world)
    return RankGroups(
        world=world,
        replicas=world.every(devices_per_replica),
        devices=world.parts_of(devices_per_replica),
    )
