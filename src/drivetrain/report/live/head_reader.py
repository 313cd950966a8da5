"""Reads the head of a request within limits of size and time."""

import io
import socket
import time

__all__ = ["HeadReader", "HeadTooLongError"]


class HeadTooLongError(Exception):
    """A client sent more than a request can need."""


class HeadReader(io.RawIOBase):
    """The bytes of one request, at most so many and no later than a deadline, however they trickle in."""

    def __init__(self, connection: socket.socket, *, most_bytes: int, timeout_s: float) -> None:
        self._connection = connection
        self._left = most_bytes
        self._deadline_s = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._left <= 0:
            raise HeadTooLongError
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(buffer[: self._left])
        self._left -= count
        return count
