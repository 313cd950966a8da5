"""Weights of 16 bits: a model takes them on for `--precision 16.16`, and gives them up after it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from drivetrain.devices.device import HALF_TYPES

__all__ = ["halve_weights", "is_half", "round_weights", "widen_weights", "widened", "widened_like"]


def is_half(dtype: torch.dtype) -> bool:
    """Whether a type has 16 bits."""
    return dtype in HALF_TYPES


def widened(tensor: Tensor) -> Tensor:
    """A 16-bit tensor in float32, any other as it is."""
    return tensor.to(torch.float32) if is_half(tensor.dtype) else tensor


def widened_like(statistics: Tensor, *parts: Tensor | None) -> tuple[Tensor | None, ...]:
    """Scale and shift of a norm in the type of its statistics, which stay wide where weights are not."""
    return tuple(None if part is None else part.to(statistics.dtype) for part in parts)


def halve_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """All parameters become 16-bit ones, in place; buffers such as running statistics stay wide."""
    _cast(model, dtype, wanted=torch.is_floating_point)


@torch.no_grad()
def round_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Parameters keep their type and become numbers that the 16-bit `dtype` holds, in place."""
    for weight in model.parameters():
        weight.copy_(weight.to(dtype))


def widen_weights(model: nn.Module) -> None:
    """16-bit parameters become float32 ones of the same numbers, in place."""
    _cast(model, torch.float32, wanted=lambda weight: is_half(weight.dtype))


@torch.no_grad()
def _cast(model: nn.Module, dtype: torch.dtype, *, wanted: Callable[[Tensor], bool]) -> None:
    for weight in model.parameters():
        if wanted(weight):
            weight.data = weight.data.to(dtype)
            # Gradients have the type of their weights, or none.
            weight.grad = None
