"""Fits the first convolution of a network to images with another number of channels."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from drivetrain.models.weights.translation import Translation

__all__ = ["adapt_first_convolution"]


def adapt_first_convolution(model: nn.Module, found: Mapping[str, Tensor], *, given: str) -> Translation:
    """The tensors, with the first convolution's summed over the input channels, or repeated and scaled.

    Grey images then give the features that they would give with their channel repeated.
    """
    name = _first_convolution(model)
    if name is None or name not in found:
        return Translation(found)
    own, kernel = model.get_parameter(name), found[name]
    if not _differs_in_channels(own, kernel):
        return Translation(found)
    there, here = kernel.shape[1], own.shape[1]
    note = (
        f"{given} has {there} input channel{'s' if there > 1 else ''} in {name}, but the model has {here}: "
        f"its weights are {_change(there, here)}."
    )
    return Translation({**found, name: _adapted(kernel, num_channels=here)}, (note,))


def _first_convolution(model: nn.Module) -> str | None:
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            is_plain = module.groups == 1 and f"{name}.weight" in dict(model.named_parameters())
            return f"{name}.weight" if is_plain else None
    return None


def _differs_in_channels(own: Tensor, kernel: Tensor) -> bool:
    outer = (0, *range(2, own.ndim))
    return (
        own.ndim == kernel.ndim
        and own.shape[1] != kernel.shape[1]
        and all(own.shape[dim] == kernel.shape[dim] for dim in outer)
    )


def _change(there: int, here: int) -> str:
    return "summed over the channels" if here == 1 else f"repeated and scaled by {there}/{here}"


def _adapted(kernel: Tensor, *, num_channels: int) -> Tensor:
    if num_channels == 1:
        return kernel.float().sum(1, keepdim=True)
    there = kernel.shape[1]
    channels = torch.arange(num_channels) % there
    return kernel.float()[:, channels] * (there / num_channels)
