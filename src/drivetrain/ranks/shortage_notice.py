"""Tells all ranks that one of them ran out of memory, so that none waits for it for ever."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from drivetrain.ranks.join import rejoin
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["ShortageNotice"]

_KEY = "out-of-memory"
# How often a rank with an accelerator looks whether another one ran out of memory.
_LOOK_S = 1.0


@dataclass(slots=True)
class ShortageNotice:
    """The notice of a process group, in its key-value store; make it while the group is whole."""

    group: ReplicaGroup
    store: Store | None = None

    def __post_init__(self) -> None:
        if self.group.size > 1:
            self.store = dist.distributed_c10d._get_default_store()

    def give(self) -> None:
        """Says that this rank ran out of memory; the others learn it once this one has left the group."""
        if self.store is not None:
            self.store.set(_KEY, str(self.group.rank))

    @property
    def is_given(self) -> bool:
        """Whether a rank of the group ran out of memory; False as well if the store is gone."""
        return self.store is not None and _holds_notice(self.store)

    def meet_again(self, *, device: str) -> ReplicaGroup:
        """Leaves the group with everything in flight and forms it anew; a collective."""
        return self.group if self.store is None else rejoin(self.group, self.store, device=device)

    @contextmanager
    def heeded(self, *, device: str) -> Iterator[None]:
        """Breaks off the collectives of this rank on an accelerator when the notice is given.

        On a CPU they end with the connections of the rank that left. On an accelerator a collective waits on
        the device, and nobody would end it. `device` is its kind, such as "cuda".
        """
        if self.store is None:
            yield
            return
        is_over = threading.Event()
        looking = threading.Thread(
            target=_look, args=(_own_connection(self.store), is_over, device), daemon=True
        )
        looking.start()
        try:
            yield
        finally:
            is_over.set()
            looking.join()


def _holds_notice(store: Store) -> bool:
    try:
        return bool(store.check([_KEY]))
    except RuntimeError:
        return False


def _own_connection(store: Store) -> Store:
    """The same store for another thread: a TCPStore holds its lock as long as it waits for a key."""
    clone = getattr(store, "clone", None)
    if clone is None:
        return store
    own: Store = clone()
    return own


def _look(store: Store, is_over: threading.Event, device: str) -> None:
    while not is_over.wait(_LOOK_S):
        if _holds_notice(store):
            _abort(device)
            return


def _abort(device: str) -> None:
    for group in list(dist.distributed_c10d._world.pg_map):
        with suppress(RuntimeError):
            group._get_backend(torch.device(device)).abort()
