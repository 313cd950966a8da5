"""Helpers for any model: replace layers, match names, set the training mode, handle unsaved values."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.models.module_values import moving_attributes, take_over_attributes

__all__ = [
    "as_before_training",
    "detach_kept_tensors",
    "hooks_of",
    "in_mode",
    "is_inside",
    "replace_modules",
    "take_over_unsaved",
    "unsaved_buffers",
    "unsaved_values",
]

# Whose classes a training gives to layers, and whose hooks it installs.
_INSTALLS = ("drivetrain.layers.", "drivetrain.models.batch_norm_classes", "drivetrain.models.narrow_convol")
_HOOKS = ("drivetrain.layers.", "drivetrain.optim.", "drivetrain.passes.")
_FREEZES = "drivetrain.models.freeze"
_CALL_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
)


def as_before_training(model: nn.Module) -> None:
    """Gives the layers of a model that was trained here their own classes back, and removes our hooks.

    What a training installs belongs to its seed, its update and its ranks; another training brings its own.
    """
    for module in model.modules():
        module.__class__ = _own_class(type(module))
        for name in _CALL_HOOKS:
            hooks = vars(module)[name]
            if isinstance(hooks, dict):
                _remove_installed(hooks)
    for parameter in model.parameters():
        for hooks in (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None)):
            _remove_installed(hooks or {})


def _own_class(kind: type[nn.Module]) -> type[nn.Module]:
    """The user's or torch's class that a class of ours extends for a training; frozen norms stay so."""
    if not kind.__module__.startswith(_INSTALLS) or any(base.__module__ == _FREEZES for base in kind.__mro__):
        return kind
    original = next(base for base in kind.__mro__ if not base.__module__.startswith("drivetrain."))
    return kind if original is nn.Module else original


def _remove_installed(hooks: MutableMapping[int, Any]) -> None:
    for key in [key for key, hook in hooks.items() if _is_installed(hook)]:
        del hooks[key]


def _is_installed(hook: Any) -> bool:
    function = hook.func if isinstance(hook, partial) else hook
    owner = type(getattr(function, "__self__", None))
    return owner.__module__.startswith(_HOOKS) or getattr(function, "__module__", "").startswith(_HOOKS)


def replace_modules(model: nn.Module, replacement: Callable[[str, nn.Module], nn.Module | None]) -> int:
    """Replaces every submodule for which `replacement(name, module)` is not None; returns their number.

    A module that is used in several places is replaced by the same object in all of them. Hooks that calls
    of the old module run are those of the new one; they get the new one as their module.
    """
    replaced: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        new = replacement(name, module) if name else None
        if new is not None:
            new.train(module.training)
            _take_over_hooks(new, module)
            replaced[module] = new
    for parent in list(model.modules()):
        for child_name, child in _children(parent):
            if child in replaced:
                setattr(parent, child_name, replaced[child])
    return len(replaced)


def _take_over_hooks(new: nn.Module, old: nn.Module) -> None:
    # The dictionaries themselves: a handle that was given for a hook still removes it.
    vars(new).update({name: vars(old)[name] for name in _CALL_HOOKS})


def is_inside(name: str, pattern: str) -> bool:
    """Whether a shell pattern matches a name in a model, or the name of a module that contains it."""
    names = accumulate(name.split("."), lambda outer, inner: f"{outer}.{inner}")
    return any(fnmatchcase(outer, pattern) for outer in names)


def hooks_of(module: nn.Module) -> list[Callable[..., Any]]:
    """The hooks that a call of a module runs before it, after it, or in its backward pass."""
    kinds = (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._backward_pre_hooks,
        module._backward_hooks,
    )
    return [hook for hooks in kinds for hook in hooks.values()]


def _children(parent: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, child) for name, child in parent._modules.items() if child is not None]


def detach_kept_tensors(model: nn.Module) -> None:
    """Cuts plain tensors that modules keep out of their graphs, as torch cannot copy others.

    torch.nn.utils.weight_norm and spectral_norm keep such a tensor, which every pass computes anew.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                vars(module)[name] = value.detach()


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Sets the `training` flag of every module and restores it; unlike `train()`, runs no user code."""
    before = {module: module.training for module in model.modules()}
    for module in before:
        module.training = training
    try:
        yield
    finally:
        for module, flag in before.items():
            module.training = flag


def unsaved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that are not in `state_dict()` (`persistent=False`), by name; training may change them."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}


def unsaved_values(model: nn.Module) -> dict[str, Tensor]:
    """The unsaved buffers, and other attributes that a pass changes, if the model was rehearsed."""
    return unsaved_buffers(model) | moving_attributes(model)


@torch.no_grad()
def take_over_unsaved(model: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Puts stored values into attributes, and into unsaved buffers of the same shape."""
    for name, buffer in unsaved_buffers(model).items():
        if name in stored and stored[name].shape == buffer.shape:
            buffer.copy_(stored[name])
    take_over_attributes(model, stored)
