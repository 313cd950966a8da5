"""The connections of this process to other ranks, so that they can be broken off all at once.

A rank that fails must release the others, and a process group gives no way to do so while messages are in
flight. A connection that ends has the same effect as the death of a rank: both sides get an error.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torch._C._distributed_c10d import PrefixStore, Store

__all__ = ["break_connections", "noting_connections"]

# A descriptor with the number of its socket: descriptors are used again.
_Connection = tuple[int, int]
_noted: set[_Connection] = set()


@contextmanager
def noting_connections() -> Iterator[None]:
    """Notes the sockets that are opened inside the block as connections to other ranks."""
    before = _sockets()
    yield
    _noted.update(_sockets() - before)


def break_connections(store: Store) -> None:
    """Ends all noted connections, except those to the store through which the ranks meet again."""
    port = _port_of(store)
    for descriptor, _ in _noted & _sockets():
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if port not in (connection.getsockname()[1], connection.getpeername()[1]):
                connection.shutdown(socket.SHUT_RDWR)
    _noted.clear()


def _sockets() -> set[_Connection]:
    found = set()
    for name in os.listdir("/dev/fd"):
        # The listing itself has a descriptor, which is closed by now.
        with suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found


def _port_of(store: Store) -> int | None:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    port: int | None = getattr(store, "port", None)
    return port
