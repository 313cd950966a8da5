"""Hands a model the rows of a table as (samples, features) and signals as (samples, channels, length)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from drivetrain.catalogue.input_kinds import InputKind

__all__ = ["as_model_input", "input_kind_of_model", "set_input_kind"]

_IMAGE_DIMENSIONS = 4


def set_input_kind(model: nn.Module, kind: InputKind) -> nn.Module:
    """Makes a model take the samples that feeds deliver as images; returns the model.

    A row of a table arrives as (samples, features, 1, 1), a signal as (samples, channels, 1, length). A
    forward pre-hook of the model and its copies takes the extra dimensions away. Samples without them pass
    as they are.
    """
    hooks = model._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook in _HOOKS.values()]:
        del hooks[key]
    if kind in _HOOKS:
        # First, so that the user's own hooks see what the model takes.
        model.register_forward_pre_hook(_HOOKS[kind], prepend=True)
    return model


def input_kind_of_model(model: nn.Module) -> InputKind:
    """What a model was made to take."""
    own = model._forward_pre_hooks.values()
    return next((kind for kind, hook in _HOOKS.items() if hook in own), "image")


def as_model_input(model: nn.Module, images: Tensor) -> Tensor:
    """What the forward of a model gets when it is called with these images, before any hook of the user's."""
    hook = _HOOKS.get(input_kind_of_model(model))
    return images if hook is None else hook(model, (images,))[0]


def _as_rows(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.flatten(1) if _has_pixels(value) else value for value in inputs)


def _as_signals(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.squeeze(2).contiguous() if _has_pixels(value) else value for value in inputs)


def _has_pixels(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() == _IMAGE_DIMENSIONS


_HOOKS: dict[InputKind, Callable[..., Any]] = {"table": _as_rows, "signal": _as_signals}
