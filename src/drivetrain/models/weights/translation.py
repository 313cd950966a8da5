"""Tensors in the form of the model that they are meant for, and what there is to say about the change."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Translation", "size_text"]


@dataclass(frozen=True, slots=True)
class Translation:
    """Tensors by the names of the model, and notes on what was changed besides names."""

    tensors: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()


def size_text(tensor: Tensor) -> str:
    """The shape of a tensor for messages: 64x3x7x7."""
    return "x".join(map(str, tensor.shape)) or "a single number"
