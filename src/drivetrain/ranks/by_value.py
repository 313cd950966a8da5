"""What travels to another process with tensors of its own, where multiprocessing would share their memory."""

import io
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

__all__ = ["ByValue"]

T = TypeVar("T")
_PICKLE_PROTOCOL = 5


class ByValue(Generic[T]):
    """Holds a value; whoever unpickles it gets a copy that nobody else can change."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Callable[[bytes], "ByValue[Any]"], tuple[bytes]]:
        content = io.BytesIO()
        torch.save(self.value, content, pickle_protocol=_PICKLE_PROTOCOL)
        return _unpacked, (content.getvalue(),)


def _unpacked(content: bytes) -> ByValue[Any]:
    # The bytes come from the process that started this one.
    return ByValue(torch.load(io.BytesIO(content), weights_only=False))
