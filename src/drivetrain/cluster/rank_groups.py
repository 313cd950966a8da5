"""Who works with whom: all ranks, the ranks of one replica, and those that hold the same stages.

Rank = replica x devices per replica + device.
"""

from dataclasses import dataclass

import torch.distributed as dist

from drivetrain.cluster.replica_group import ALONE, ReplicaGroup

__all__ = ["ALL_ALONE", "RankGroups", "split_ranks"]


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
        replicas=_every(world, step=devices_per_replica),
        devices=world.parts_of(devices_per_replica),
    )


def _every(world: ReplicaGroup, *, step: int) -> ReplicaGroup:
    """The members whose rank leaves the same remainder as this one's."""
    size = world.size // step
    if size == 1:
        return ALONE
    ranks = [world._global_rank(rank) for rank in range(world.rank % step, world.size, step)]
    group = dist.new_group(ranks, timeout=world._timeout, use_local_synchronization=True)
    return ReplicaGroup(rank=world.rank // step, size=size, process_group=group).counted_by_host()
