"""A channel that is as late and as greedy as a network may be, for tests in one process."""

from collections.abc import Sequence

import torch
from torch import Tensor

from drivetrain.pipeline.runtime.channels import LocalChannel
from drivetrain.schedules.traffic import Message

__all__ = ["LateChannel"]


class LateChannel(LocalChannel):
    """Reads what is sent only when it is received, and overwrites at once what it is given back."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Message] = []
        self.given_back = 0
        self._buffers: set[int] = set()

    def send(self, message: Message, value: Tensor) -> None:
        self.sent.append(message)
        super().send(message, value)

    def receive(self, message: Message) -> Tensor:
        buffer = super().receive(message).clone()
        self._buffers.add(buffer.untyped_storage().data_ptr())
        return buffer

    def recycle(self, received: Sequence[Tensor]) -> None:
        for value in received:
            place = value.untyped_storage().data_ptr()
            assert place in self._buffers, "nothing but what was received is given back, and that once"
            self._buffers.remove(place)
            self.given_back += 1
            # Not in place for autograd, which would notice it before the numbers do.
            value.data.fill_(torch.nan if value.is_floating_point() else 7)
