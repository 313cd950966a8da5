"""Buffers of a user's own that a forward pass changes: statistics that nobody averages."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.models.freeze import FrozenBatchNorm

__all__ = ["moving_buffers"]

_SAMPLES = 2


def moving_buffers(model: nn.Module, *, image_shape: tuple[int, int, int]) -> dict[str, bool]:
    """The buffers outside of torch's norms that move in training, and whether the samples decide how.

    Two copies of the model run forward, each on its own images; the model itself stays as it is. A model that
    cannot run so is taken to have none: what is wrong with it shows elsewhere.
    """
    before = dict(_own_buffers(model))
    if not before:
        return {}
    try:
        first, second = (_moved(model, image_shape, seed=seed) for seed in (1, 2))
    except Exception:
        return {}
    return {
        name: not _same(first[name], second[name])
        for name, value in before.items()
        if not _same(value, first[name]) or not _same(value, second[name])
    }


def _own_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for prefix, module in model.named_modules():
        if not isinstance(module, _NormBase | FrozenBatchNorm):
            yield from module.named_buffers(prefix=prefix, recurse=False)


@torch.no_grad()
def _moved(model: nn.Module, image_shape: tuple[int, int, int], *, seed: int) -> dict[str, Tensor]:
    copy = deepcopy(model).train()
    with torch.random.fork_rng(devices=[]):
        generator = torch.Generator().manual_seed(seed)
        copy(torch.randn(_SAMPLES, *image_shape, generator=generator))
    return dict(_own_buffers(copy))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
