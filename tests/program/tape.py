"""A stand-in for CUDA graphs on a CPU: it keeps the operations of a computation and repeats them alone.

As with a graph, no line of Python runs again at a replay, every result goes to the place where the recording
had put it, and what needs the host cannot be recorded.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["Tape"]

# Operations whose result, or its size, the host has to know.
_OF_HOST = ("_local_scalar_dense", "nonzero", "lift_fresh", "masked_select", "unique")
# Arguments that batch norms of torch write to without saying so in their schema.
_WRITTEN = ("running_mean", "running_var")

_Entry = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]


class Tape:
    """Records and replays; made with the device that it is for, as the real one."""

    def __init__(self, _device: torch.device) -> None:
        self.starts = 0

    def warm_up(self, compute: Callable[[], None]) -> None:
        compute()

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        recording = _Recording()
        with recording:
            compute()
        # A graph records without computing; here all that was computed in passing is taken back.
        recording.undo()
        return recording.replay

    def start_over(self) -> None:
        self.starts += 1


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._entries: list[_Entry] = []
        self._own: set[int] = set()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in _OF_HOST:
            raise RuntimeError(f"{name} is not permitted while recording\nmore lines")
        self._keep(func, args, kwargs or {})
        # As they are now: `unsqueeze_` and the like change the shape of a tensor later.
        arguments = _aliases((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self._entries.append((func, *arguments, _aliases(result)))
        given = _places((args, kwargs))
        # A view of something older is not the recording's own.
        self._own.update(place for place in _places(result) if place not in given or place in self._own)
        return result

    def _keep(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Copies what is about to be written to and was there before the recording."""
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if _is_written(argument):
                self._keep_all(value)
        for argument in func._schema.arguments:
            if argument.name in kwargs and _is_written(argument):
                self._keep_all(kwargs[argument.name])

    def _keep_all(self, value: Any) -> None:
        for leaf in _tensors(value):
            place = leaf.untyped_storage().data_ptr()
            if place not in self._own and place not in self._before:
                whole = torch.empty(0, dtype=leaf.dtype).set_(leaf.untyped_storage())
                self._before[place] = (whole, whole.clone())

    def undo(self) -> None:
        with torch.no_grad():
            for whole, copy in self._before.values():
                whole.copy_(copy)

    def replay(self) -> None:
        # Inference mode may write to every tensor, also to those of the model's own inference mode.
        with torch.inference_mode():
            for func, args, kwargs, recorded in self._entries:
                repeated = func(*args, **kwargs)
                for place, value in zip(_tensors(recorded), _tensors(repeated), strict=True):
                    if place.data_ptr() != value.data_ptr():
                        place.copy_(value)


def _is_written(argument: Any) -> bool:
    is_marked = argument.alias_info is not None and argument.alias_info.is_write
    return is_marked or argument.name in _WRITTEN


def _aliases(values: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, values)


def _places(values: Any) -> set[int]:
    return {leaf.untyped_storage().data_ptr() for leaf in _tensors(values)}


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
