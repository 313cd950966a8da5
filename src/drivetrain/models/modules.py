"""Reading and changing a model from outside: replaced layers, buffers that it does not save."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import accumulate

import torch
from torch import Tensor, nn

__all__ = ["in_mode", "is_inside", "replace_modules", "take_over_buffers", "unsaved_buffers"]


def replace_modules(model: nn.Module, replacement: Callable[[str, nn.Module], nn.Module | None]) -> int:
    """Puts `replacement(name, module)` in the place of every submodule it answers for; counts them.

    A module that is used in several places is replaced by one and the same object in all of them.
    """
    replaced: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        new = replacement(name, module) if name else None
        if new is not None:
            new.train(module.training)
            replaced[module] = new
    for parent in list(model.modules()):
        for child_name, child in _children(parent):
            if child in replaced:
                setattr(parent, child_name, replaced[child])
    return len(replaced)


def is_inside(name: str, pattern: str) -> bool:
    """Whether a shell pattern matches a name in a model, or that of a module around it."""
    names = accumulate(name.split("."), lambda outer, inner: f"{outer}.{inner}")
    return any(fnmatchcase(outer, pattern) for outer in names)


def _children(parent: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, child) for name, child in parent._modules.items() if child is not None]


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Sets the flag of every module by hand, as a model's own `train` might do more, and back."""
    before = {module: module.training for module in model.modules()}
    for module in before:
        module.training = training
    try:
        yield
    finally:
        for module, flag in before.items():
            module.training = flag


# Buffers that a model does not save (`persistent=False`): a training may move them all the same.


def unsaved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """A model's buffers that are not in its `state_dict()`, by name."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}


@torch.no_grad()
def take_over_buffers(model: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Gives a model's unsaved buffers the values of their names and shapes; others stay as they are."""
    for name, buffer in unsaved_buffers(model).items():
        if name in stored and stored[name].shape == buffer.shape:
            buffer.copy_(stored[name])
