"""The first gradients of an update, written into the flat gradient instead of added to zeros.

A backward pass adds each gradient to what it finds, one operation for each parameter. One that finds nothing
leaves its own tensors there; a single operation then copies all of them to where later ones are added.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from drivetrain.optim.flat_parameters import FlatParameters

__all__ = ["written_at_once"]


@contextmanager
def written_at_once(parameters: FlatParameters) -> Iterator[None]:
    """Around the first backward pass of an update; after it the flat gradient is that of this pass alone."""
    for owner in parameters.owners:
        owner.grad = None
    try:
        yield
        _write(parameters)
    finally:
        for owner, place in zip(parameters.owners, parameters.gradient_places, strict=True):
            owner.grad = place


@torch.no_grad()
def _write(parameters: FlatParameters) -> None:
    places: list[Tensor] = []
    found: list[Tensor] = []
    for owner, place in zip(parameters.owners, parameters.gradient_places, strict=True):
        if owner.grad is None:
            place.zero_()
        else:
            places.append(place)
            found.append(owner.grad.to_dense() if owner.grad.is_sparse else owner.grad)
    if found:
        torch._foreach_copy_(places, found)
