"""Sends objects of Python users to other processes: checks that they can be pickled, copies tensors."""

import copyreg
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from drivetrain.core.errors import BadInputError

__all__ = ["ByValue", "require_sendable"]

_HOOKS = "_load_state_dict_pre_hooks"
T = TypeVar("T")
# torch.save would use protocol 2, which cannot pickle bytes objects over 4 GiB.
_PICKLE_PROTOCOL = 5


def require_sendable(given: Any, *, what: str) -> None:
    """Refuses an object that cannot be pickled; `what` names it in the error."""
    if isinstance(given, nn.Module):
        _make_parametrised_sendable(given)
    try:
        pickle.Pickler(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL).dump(given)
    except Exception as error:
        raise BadInputError(
            f"{what} cannot be sent to other processes ({' '.join(str(error).split())}); define its class "
            "and functions at the top level of a module."
        ) from error


class _Nowhere(io.RawIOBase):
    """A file that discards what is written: the pickle is only a check."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


def _make_parametrised_sendable(model: nn.Module) -> None:
    """Makes modules with parametrised weights picklable: torch makes their classes at run time."""
    for module in model.modules():
        if parametrize.is_parametrized(module):
            copyreg.pickle(type(module), _taken_apart)


def _taken_apart(module: nn.Module) -> tuple[Any, ...]:
    assert isinstance(module.parametrizations, nn.ModuleDict)
    names = list(module.parametrizations)
    state = {**module.__dict__, _HOOKS: _sendable_hooks(module.__dict__[_HOOKS])}
    return _put_together, (parametrize.type_before_parametrizations(module), names, state)


def _sendable_hooks(hooks: Mapping[int, Any]) -> OrderedDict[int, Any]:
    """Drops the hook by which weight_norm reads old checkpoints: a local function cannot be pickled."""
    return OrderedDict(
        (key, hook)
        for key, hook in hooks.items()
        if getattr(getattr(hook, "hook", hook), "__module__", "") != parametrizations.__name__
    )


def _put_together(kind: type[nn.Module], names: list[str], state: dict[str, Any]) -> nn.Module:
    module = kind.__new__(kind)
    module.__setstate__(state)  # type: ignore[no-untyped-call]
    parametrize._inject_new_class(module)
    for name in names:
        parametrize._inject_property(module, name)
    return module


class ByValue(Generic[T]):
    """Holds a value and pickles it by copy; multiprocessing would share the memory of its tensors."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Callable[[bytes], "ByValue[Any]"], tuple[bytes]]:
        content = io.BytesIO()
        torch.save(self.value, content, pickle_protocol=_PICKLE_PROTOCOL)
        return _unpacked, (content.getvalue(),)


def _unpacked(content: bytes) -> ByValue[Any]:
    # Safe without weights_only: the bytes come from the process that started this one.
    return ByValue(torch.load(io.BytesIO(content), weights_only=False))
