"""How much memory a computation holds, counted tensor by tensor, also where tensors are fake."""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

__all__ = ["LiveBytes", "storage_key"]


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, counts the memory of all tensors that come and go; what was there before does not count.

    What a kernel takes for itself while it runs is not seen, such as cuDNN's workspace.
    """

    def __init__(self, *, before: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self.largest_bytes = 0
        self._held: dict[int, int] = {}
        self._before = {storage_key(tensor) for tensor in before}

    def bytes_of(self, storages: Iterable[int]) -> int:
        """What those of the storages hold that were made inside and are still there."""
        return sum(self._held.get(key, 0) for key in set(storages))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in tree_iter(outputs):
            if isinstance(output, Tensor):
                self._note(output)
        return outputs

    def _note(self, tensor: Tensor) -> None:
        key = storage_key(tensor)
        if key in self._held or key in self._before:
            return
        storage = tensor.untyped_storage()
        self._held[key] = storage.nbytes()
        weakref.finalize(storage, self._forget, key)
        self.live_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.largest_bytes = max(self.largest_bytes, storage.nbytes())

    def _forget(self, key: int) -> None:
        self.live_bytes -= self._held.pop(key)


def storage_key(tensor: Tensor) -> int:
    """What tensors that share memory have in common, for as long as one of them lives."""
    return int(tensor.untyped_storage()._cdata)
