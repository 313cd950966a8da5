"""Converts the weights of a model to 16 bits for `--precision 16.16`, and back."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from drivetrain.devices.device import HALF_TYPES

__all__ = ["halve_weights", "is_half", "round_weights", "widen_weights", "widened", "widened_like"]


def is_half(dtype: torch.dtype) -> bool:
    """Whether a dtype has 16 bits."""
    return dtype in HALF_TYPES


def widened(tensor: Tensor) -> Tensor:
    """A 16-bit tensor converted to float32; any other unchanged."""
    return tensor.to(torch.float32) if is_half(tensor.dtype) else tensor


def widened_like(statistics: Tensor, *parts: Tensor | None) -> tuple[Tensor | None, ...]:
    """Converts the scale and shift of a norm to the dtype of its statistics, which stay in 32 bits."""
    return tuple(None if part is None else part.to(statistics.dtype) for part in parts)


def halve_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Converts all parameters to 16 bits in place; buffers such as running statistics stay in 32 bits."""
    _cast(model, dtype, wanted=torch.is_floating_point)


@torch.no_grad()
def round_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Rounds parameters in place to values of the 16-bit `dtype`, without changing their own dtype."""
    for weight in model.parameters():
        weight.copy_(weight.to(dtype))


def widen_weights(model: nn.Module) -> None:
    """Converts 16-bit parameters to float32 in place."""
    _cast(model, torch.float32, wanted=lambda weight: is_half(weight.dtype))


@torch.no_grad()
def _cast(model: nn.Module, dtype: torch.dtype, *, wanted: Callable[[Tensor], bool]) -> None:
    for weight in model.parameters():
        if wanted(weight):
            weight.data = weight.data.to(dtype)
            # torch requires a gradient to have the dtype of its parameter.
            weight.grad = None
