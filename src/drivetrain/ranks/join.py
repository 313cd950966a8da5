"""How a rank joins the others and leaves them again."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psutil
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["JOIN_TIMEOUT_S", "join", "join_at", "joined", "leave", "meet"]

# Ranks reach their first collective as far apart as their hosts read data.
JOIN_TIMEOUT_S = 600.0
_INTERFACE = "GLOO_SOCKET_IFNAME"
_ANY_PORT = 9
_LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


def join(place: RankPlace, *, device: str, timeout_s: float = JOIN_TIMEOUT_S) -> ReplicaGroup:
    """Meets the other ranks; `device` is the kind whose tensors they will exchange, such as "cuda"."""
    if place.world_size == 1:
        return ReplicaGroup()
    store = meet(place, timeout_s=timeout_s)
    return join_at(store, place=place, device=device, timeout_s=timeout_s)


@contextmanager
def joined(place: RankPlace, *, device: str, timeout_s: float = JOIN_TIMEOUT_S) -> Iterator[ReplicaGroup]:
    """Joins the other ranks for the time of the block."""
    group = join(place, device=device, timeout_s=timeout_s)
    try:
        yield group
    except BaseException:
        leave(failed=True)
        raise
    leave()


def leave(*, failed: bool = False) -> None:
    """Parts from the other ranks; after a failure without waiting for what is still under way."""
    if not dist.is_initialized():
        return
    if failed and dist.get_backend() != "gloo":
        dist.distributed_c10d._abort_process_group()
    else:
        dist.destroy_process_group()


def meet(place: RankPlace, *, timeout_s: float) -> Store:
    """The place where the ranks leave each other notes, once this one has reached it."""
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
    return PrefixStore(f"drivetrain/{place.restart}", store)


def join_at(store: Store, *, place: RankPlace, device: str, timeout_s: float) -> ReplicaGroup:
    """Joins the other ranks that look into the same store."""
    interface = _LOOPBACK_INTERFACE if place.is_loopback else _interface_towards(place.address)
    if interface is not None:
        os.environ.setdefault(_INTERFACE, interface)
    group = ReplicaGroup(
        rank=place.rank,
        size=place.world_size,
        local_rank=place.local_rank,
        local_size=place.local_world_size,
    )
    try:
        dist.init_process_group(
            _backends(device),
            store=store,
            rank=place.rank,
            world_size=place.world_size,
            timeout=timedelta(seconds=timeout_s),
        )
        # Who left at once would close connections that a slower rank has not taken up yet.
        group.barrier()
    except RuntimeError as error:
        leave(failed=True)
        # A failed attempt would give this rank's next group another name than the others give it.
        dist.distributed_c10d._world.group_count = 0
        raise RunFailedError(
            f"Rank {place.rank} waited in vain for the other ranks at {place.address}:{place.port}, which "
            f"must come within {timeout_s:g} seconds: {error}"
        ) from error
    return group


def _interface_towards(address: str) -> str | None:
    """The network by which this host reaches a meeting place on another one.

    Gloo would take that of the host's own name, which many systems give to the loopback.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(address, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Nothing is sent: the system only chooses a way.
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if own in (entry.address for entry in addresses):
            return name
    return None


def _backends(device: str) -> str:
    """One for the tensors of the device, and gloo for objects and for what stays on the CPU."""
    if device == "cpu":
        return "gloo"
    return f"cpu:gloo,{device}:{dist.get_default_backend_for_device(device)}"


def _no_meeting(place: RankPlace, *, error: Exception) -> RunFailedError | BadInputError:
    if place.rank == 0 and "EADDRINUSE" in str(error):
        return BadInputError(
            f"MASTER_PORT {place.port} is in use on {place.address}; set it to a free port, such as "
            f"{place.port % 60000 + 1}."
        )
    return RunFailedError(
        f"Rank {place.rank} found nobody at {place.address}:{place.port}; rank 0 must run there and its port "
        f"be reachable ({error})."
    )
