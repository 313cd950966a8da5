"""Who works with whom: all ranks, the ranks of one replica, and those that hold the same stages.

Rank = replica x devices per replica + device.
"""

from dataclasses import dataclass

from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

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
        replicas=world.every(devices_per_replica),
        devices=world.parts_of(devices_per_replica),
    )
