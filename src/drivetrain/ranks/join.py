"""Joins the process group of a training, and leaves it again."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import psutil
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.ranks.connections import break_connections, noting_connections
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.replica_group import ReplicaGroup, WaitClock

__all__ = ["JOIN_TIMEOUT_S", "join", "join_at", "joined", "leave", "meet", "rejoin"]

# Ranks open their data before the first collective; the timeout covers hosts that read more slowly.
JOIN_TIMEOUT_S = 600.0
_INTERFACE = "GLOO_SOCKET_IFNAME"
# Any port will do to look up a route; 9 is "discard".
_ANY_PORT = 9
_LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


def join(place: RankPlace, *, device: str, timeout_s: float = JOIN_TIMEOUT_S) -> ReplicaGroup:
    """Joins the other ranks; `device` is the kind of the tensors to be exchanged, such as "cuda"."""
    if place.world_size == 1:
        return ReplicaGroup()
    store = meet(place, timeout_s=timeout_s)
    return join_at(store, place=place, device=device, timeout_s=timeout_s)


def rejoin(
    group: ReplicaGroup, store: Store, *, device: str, timeout_s: float = JOIN_TIMEOUT_S
) -> ReplicaGroup:
    """Ends all groups of this process with whatever is in flight, and forms the group of all ranks again.

    A collective; `store` is that of the former group. Ranks that wait for a message of this one get an error,
    which must lead them here too.
    """
    break_connections(store)
    leave(failed=True)
    again = replace(group, process_group=None, waits=WaitClock())
    with noting_connections():
        dist.init_process_group(
            _backends(device),
            store=PrefixStore("again", store),
            rank=group.rank,
            world_size=group.size,
            timeout=timedelta(seconds=timeout_s),
        )
        again.barrier()
    return again


@contextmanager
def joined(place: RankPlace, *, device: str, timeout_s: float = JOIN_TIMEOUT_S) -> Iterator[ReplicaGroup]:
    """Joins the other ranks for the duration of the block."""
    group = join(place, device=device, timeout_s=timeout_s)
    try:
        yield group
    except BaseException:
        leave(failed=True)
        raise
    leave()


def leave(*, failed: bool = False) -> None:
    """Leaves the process group; after a failure, without waiting for pending collectives."""
    if not dist.is_initialized():
        return
    # destroy_process_group may wait for pending NCCL collectives, which never end once a rank is gone.
    if failed and dist.get_backend() != "gloo":
        dist.distributed_c10d._abort_process_group()
    else:
        dist.destroy_process_group()


def meet(place: RankPlace, *, timeout_s: float) -> Store:
    """Connects to the key-value store through which the ranks find each other."""
    serves = place.rank == 0 and not place.launcher_serves
    try:
        store: Store = TCPStore(
            place.address,
            place.port,
            is_master=serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=place.listen_fd if serves else None,
        )
    except dist.DistNetworkError as error:
        raise _no_meeting(place, error=error) from error
    # torchrun keeps its store over restarts; the prefix hides the keys of ranks that are gone.
    return PrefixStore(f"drivetrain/{place.restart}", store)


def join_at(store: Store, *, place: RankPlace, device: str, timeout_s: float) -> ReplicaGroup:
    """Forms the process group of the ranks that are connected to the same store."""
    interface = _LOOPBACK_INTERFACE if place.is_loopback else _interface_towards(place.address)
    if interface is not None:
        # Gloo reads it when the process group is formed.
        os.environ.setdefault(_INTERFACE, interface)
    group = ReplicaGroup(
        rank=place.rank,
        size=place.world_size,
        local_rank=place.local_rank,
        local_size=place.local_world_size,
    )
    try:
        with noting_connections():
            dist.init_process_group(
                _backends(device),
                store=store,
                rank=place.rank,
                world_size=place.world_size,
                timeout=timedelta(seconds=timeout_s),
            )
            # A rank that left right away would close connections that a slower rank has not accepted yet.
            group.barrier()
    except RuntimeError as error:
        leave(failed=True)
        # torch names groups by this counter, which a failed attempt has advanced. Without the reset the next
        # group would have another name here than on ranks that did not fail.
        dist.distributed_c10d._world.group_count = 0
        raise RunFailedError(
            f"Rank {place.rank} could not join the other ranks at {place.address}:{place.port} within "
            f"{timeout_s:g} seconds: {error}"
        ) from error
    return group


def _interface_towards(address: str) -> str | None:
    """The network interface through which this host reaches rank 0.

    By default Gloo takes the interface of the host's own name, which many systems resolve to the loopback
    address; other hosts could not connect to it.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(address, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Connecting a UDP socket sends nothing; the system only chooses a route.
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if own in (entry.address for entry in addresses):
            return name
    return None


def _backends(device: str) -> str:
    """The default backend of the device for its tensors, and gloo for objects and CPU tensors."""
    if device == "cpu":
        return "gloo"
    return f"cpu:gloo,{device}:{dist.get_default_backend_for_device(device)}"


def _no_meeting(place: RankPlace, *, error: Exception) -> RunFailedError | BadInputError:
    if place.rank == 0 and "EADDRINUSE" in str(error):
        return BadInputError(
            f"MASTER_PORT {place.port} is already in use on {place.address}; set it to a free port, such as "
            f"{place.port % 60000 + 1}."
        )
    return RunFailedError(
        f"Rank {place.rank} cannot connect to rank 0 at {place.address}:{place.port}; check that rank 0 runs "
        f"there and that the port is reachable ({error})."
    )
