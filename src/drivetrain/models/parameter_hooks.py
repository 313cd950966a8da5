"""Copies a user's model with the hooks of its parameters, which torch drops when it copies or pickles one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from drivetrain.models.modules import detach_kept_tensors

__all__ = ["carry_hooks", "copy_model"]

# The attribute of a model under which its hooks travel.
_CARRIED = "_hooks_of_parameters"
Model = TypeVar("Model", bound=nn.Module)
Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Hooks:
    on_gradient: tuple[Hook, ...]
    after_accumulation: tuple[Hook, ...]


def copy_model(model: Model) -> Model:
    """A deep copy whose parameters have the hooks of the originals.

    Hooks that are methods of the model become methods of the copy, as hooks of modules do.
    """
    detach_kept_tensors(model)
    with _carrying(model):
        copied = deepcopy(model)
    _put_back(copied)
    return copied


def carry_hooks(model: nn.Module) -> None:
    """Makes a model take the hooks along when it is pickled; `copy_model` of what arrives restores them."""
    hooks = _found(model)
    if hooks:
        vars(model)[_CARRIED] = hooks


@contextmanager
def _carrying(model: nn.Module) -> Iterator[None]:
    carries_already = _CARRIED in vars(model)
    if not carries_already:
        carry_hooks(model)
    try:
        yield
    finally:
        if not carries_already:
            vars(model).pop(_CARRIED, None)


def _found(model: nn.Module) -> dict[str, _Hooks]:
    found = {}
    for name, parameter in model.named_parameters():
        hooks = _Hooks(
            tuple((parameter._backward_hooks or {}).values()),
            tuple((getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()),
        )
        if hooks.on_gradient or hooks.after_accumulation:
            found[name] = hooks
    return found


def _put_back(model: nn.Module) -> None:
    carried: dict[str, _Hooks] = vars(model).pop(_CARRIED, {})
    named = dict(model.named_parameters())
    for name, hooks in carried.items():
        parameter = named[name]
        is_trained = parameter.requires_grad
        # torch accepts hooks only while a parameter is trained; a frozen one keeps those it has.
        parameter.requires_grad_(True)
        for hook in hooks.on_gradient:
            parameter.register_hook(hook)  # type: ignore[no-untyped-call]
        for hook in hooks.after_accumulation:
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        parameter.requires_grad_(is_trained)
