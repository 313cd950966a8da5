"""Noted connections can be broken off; others stay."""

import socket

import pytest
from torch._C._distributed_c10d import HashStore

from drivetrain.ranks.connections import break_connections, noting_connections


def test_only_noted_connections_are_broken_off() -> None:
    other = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        with noting_connections():
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        break_connections(HashStore())
        with near, far:
            assert far.recv(1) == b""
            with pytest.raises(BrokenPipeError):
                near.send(b"x")
        other[0].send(b"x")
        assert other[1].recv(1) == b"x"
    for end in other:
        end.close()
