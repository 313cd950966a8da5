"""How values and gradients get from one stage to another: inside a process, or between ranks."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from drivetrain.schedules.traffic import Message

__all__ = ["Channel", "LocalChannel"]


class Channel(Protocol):
    """Carries the messages of one update; bytes and seconds of waiting add up over the training."""

    bytes_sent: int
    wait_seconds: float

    def begin(self, incoming: Mapping[int, Sequence[Message]]) -> None:
        """Tells what will arrive in this update, per sending device and in its order."""
        ...

    def send(self, message: Message, value: Tensor) -> None:
        """Hands a tensor over; it must not be changed afterwards."""
        ...

    def has(self, message: Message) -> bool:
        """Whether `receive` can be called; where it waits by itself it always can."""
        ...

    def receive(self, message: Message) -> Tensor:
        """The tensor of a message, once."""
        ...

    def recycle(self, received: Sequence[Tensor]) -> None:
        """Says that nobody needs these received tensors any more."""
        ...

    def finish(self) -> None:
        """Waits until everything sent has left."""
        ...


class LocalChannel:
    """All devices of a replica are played by one process; values are handed over as they are."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        self.wait_seconds = 0.0
        self._mail: dict[Message, Tensor] = {}

    def begin(self, incoming: Mapping[int, Sequence[Message]]) -> None:
        pass

    def send(self, message: Message, value: Tensor) -> None:
        self._mail[message] = value
        self.bytes_sent += value.nbytes

    def has(self, message: Message) -> bool:
        return message in self._mail

    def receive(self, message: Message) -> Tensor:
        return self._mail.pop(message)

    def recycle(self, received: Sequence[Tensor]) -> None:
        pass

    def finish(self) -> None:
        assert not self._mail, "every message that was sent is received"
