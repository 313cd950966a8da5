"""Buffers that a model does not save (`persistent=False`): a training may move them all the same."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["take_over_buffers", "unsaved_buffers"]


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
