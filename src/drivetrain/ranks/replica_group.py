"""The replicas of a training as one of them sees them: its place, what all do together, how long it waits."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain.ranks.host import host_key

__all__ = ["ALL_ALONE", "ALONE", "RankGroups", "ReplicaGroup", "WaitClock", "split_ranks"]

# Events that have come to pass are read now and then, so that a long execution does not pile them up.
_MOST_PENDING = 256


# How long collectives were waited for, without making anybody wait for the answer.


class WaitClock:
    """Adds up the seconds of waits: of this process on a CPU, of the device's stream on an accelerator."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._pending: deque[tuple[torch.Event, torch.Event]] = deque()
        self._is_complete = True

    def timed(self, wait: Callable[[], object], *, device: torch.device) -> Callable[[], object]:
        """The same wait, counted."""
        return lambda: self._on_host(wait) if device.type == "cpu" else self._on_stream(wait, device)

    def read(self) -> float | None:
        """Seconds so far; None where the device cannot tell. On an accelerator, what was waited for must
        have come: it is asked after the device was synchronised."""
        while self._pending:
            self._read_oldest()
        return self._seconds if self._is_complete else None

    def _on_host(self, wait: Callable[[], object]) -> None:
        started = time.perf_counter()
        wait()
        self._seconds += time.perf_counter() - started

    def _on_stream(self, wait: Callable[[], object], device: torch.device) -> None:
        """A wait of the stream alone: the time between two marks in it, read once both have passed."""
        try:
            begun, ended = (torch.Event(device, enable_timing=True) for _ in range(2))
            begun.record()
        except RuntimeError:
            # A device whose marks have no times.
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
    """Every method but `send` and `receive_` is a collective: all members call it, in the same order. Alone,
    all are free.

    `local_rank` and `local_size` count the members on this host; `waits` is how long sums were waited for.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    process_group: dist.ProcessGroup | None = None
    waits: WaitClock = field(default_factory=WaitClock, compare=False, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this member is the one that writes, prints and decides."""
        return self.rank == 0

    def begin_sum(self, values: Tensor) -> Callable[[], object]:
        """Starts to add up `values` over all members, in place; the call returned waits for the sum."""
        if self.size == 1:
            return _nothing
        work = dist.all_reduce(values, group=self.process_group, async_op=True)
        assert work is not None
        return self.waits.timed(work.wait, device=values.device)

    def sum_(self, values: Tensor) -> None:
        """Adds up `values` over all members, in place."""
        self.begin_sum(values)()

    def broadcast_(self, values: Tensor) -> None:
        """Everybody gets the first member's values, in place."""
        if self.size > 1:
            dist.broadcast(values, group=self.process_group, group_src=0)

    def send(self, values: Tensor, *, to: int) -> None:
        """Gives one other member the values, which that one receives; returns when they may change."""
        dist.send(values, group=self.process_group, group_dst=to)

    def receive_(self, values: Tensor, *, sender: int) -> None:
        """Takes what one other member sends, in place."""
        dist.recv(values, group=self.process_group, group_src=sender)

    def gather(self, item: Any) -> list[Any]:
        """Everybody's item, in the order of the members; for few and small things, by pickle."""
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
            self.gather(None)

    def parts_of(self, size: int) -> "ReplicaGroup":
        """The part of `size` consecutive members that this one belongs to; a collective too."""
        if size == 1 or self.size == 1:
            return ALONE
        if size == self.size:
            return self.timed_apart()
        first = self.rank - self.rank % size
        return self._part(range(first, first + size))

    def every(self, step: int) -> "ReplicaGroup":
        """The part of all members whose rank leaves the same remainder as this one's; a collective too."""
        members = range(self.rank % step, self.size, step)
        return ALONE if len(members) == 1 else self._part(members)

    def _part(self, members: Sequence[int]) -> "ReplicaGroup":
        ranks = [self._global_rank(member) for member in members]
        # Only the part's own members meet, so that a part can be cut again.
        group = dist.new_group(ranks, timeout=self._timeout, use_local_synchronization=True)
        own = members.index(self.rank)
        return ReplicaGroup(rank=own, size=len(members), process_group=group).counted_by_host()

    def timed_apart(self) -> "ReplicaGroup":
        """The same members, whose waits are counted apart from this group's."""
        return self if self.size == 1 else replace(self, waits=WaitClock())

    def counted_by_host(self) -> "ReplicaGroup":
        """The same members with those of each host counted; a collective too."""
        hosts = self.gather(host_key())
        host = hosts[self.rank]
        return replace(self, local_rank=hosts[: self.rank].count(host), local_size=hosts.count(host))

    def set_timeout(self, seconds: float) -> None:
        """How long a collective, of this group or of any part, may wait from now on before it fails."""
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


# Who works with whom: all ranks, the ranks of one replica, and those that hold the same stages.
#
# Rank = replica x devices per replica + device.


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """`replicas` are the ranks with the same stages, one of each replica; `devices` those of one replica."""

    world: ReplicaGroup = ALONE
    replicas: ReplicaGroup = ALONE
    devices: ReplicaGroup = ALONE


ALL_ALONE = RankGroups()


def split_ranks(world: ReplicaGroup, *, devices_per_replica: int) -> RankGroups:
    """The groups of this rank; a collective, as new groups are made."""
    if world.size == 1 or devices_per_replica == 1:
        return RankGroups(world=world, replicas=world)
    return RankGroups(
        world=world,
        replicas=world.every(devices_per_replica),
        devices=world.parts_of(devices_per_replica),
    )
