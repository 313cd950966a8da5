"""Dropout whose mask is a function of (seed, layer, update, sample, element) and is never stored.

The backward pass computes the mask again, so no mask takes memory. A draw has 16 bits: the rate is rounded to
a multiple of 1/65536, and kept values are scaled by the rounded rate.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from drivetrain.core.element_hash import NUM_LEVELS
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.site import Draw, Site, levels_in

__all__ = ["CounterDropout", "channel_shape", "drop", "dropout_class"]


class CounterDropout(nn.Module):
    """The forward pass of a dropout layer in training; a mixin for torch's classes, which have the rest."""

    p: float
    inplace: bool
    site: Site
    whole_channels = False

    @property
    def context(self) -> UpdateContext:
        return self.site.context

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        dropped = drop(inputs, rate=self.p, site=self.site, whole_channels=self.whole_channels)
        return inputs.copy_(dropped) if self.inplace and dropped is not inputs else dropped


class _ElementDropout(CounterDropout, nn.Dropout):
    pass


class _ChannelDropout1d(CounterDropout, nn.Dropout1d):
    whole_channels = True


class _ChannelDropout2d(CounterDropout, nn.Dropout2d):
    whole_channels = True


class _ChannelDropout3d(CounterDropout, nn.Dropout3d):
    whole_channels = True


_CLASS_OF: dict[type[nn.Module], type[CounterDropout]] = {
    nn.Dropout: _ElementDropout,
    nn.Dropout1d: _ChannelDropout1d,
    nn.Dropout2d: _ChannelDropout2d,
    nn.Dropout3d: _ChannelDropout3d,
}


def dropout_class(kind: type[nn.Module]) -> type[CounterDropout] | None:
    """The counter-based class for a dropout class of torch; None for any other class."""
    return _CLASS_OF.get(kind)


def drop(inputs: Tensor, *, rate: float, site: Site, whole_channels: bool = False) -> Tensor:
    """Drops elements, or whole channels, at the rate given; `inputs` itself where nothing is dropped."""
    threshold = round(rate * NUM_LEVELS)
    if threshold == 0:
        return inputs
    if threshold == NUM_LEVELS:
        return torch.zeros_like(inputs)
    draw = site.next_draw(inputs.shape, inputs)
    if draw is None:
        return inputs.clone()
    if torch.compiler.is_compiling():
        return _drop_compiled(inputs, draw.keys, draw.sample_dim, threshold, whole_channels)
    dropped: Tensor = _Drop.apply(inputs, draw.keys, draw.sample_dim, threshold, whole_channels)  # type: ignore[no-untyped-call]
    return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        keys: Tensor,
        sample_dim: int | None,
        threshold: int,
        whole_channels: bool,
    ) -> Tensor:
        ctx.save_for_backward(keys)
        ctx.sample_dim, ctx.threshold, ctx.whole_channels = sample_dim, threshold, whole_channels
        return _masked(inputs, Draw(keys, sample_dim), threshold, whole_channels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (keys,) = ctx.saved_tensors
        (gradient,) = gradients
        dropped = _masked(gradient, Draw(keys, ctx.sample_dim), ctx.threshold, ctx.whole_channels)
        return dropped, None, None, None, None


def _drop_compiled(
    inputs: Tensor, keys: Tensor, sample_dim: int | None, threshold: int, whole_channels: bool
) -> Tensor:
    """Wraps the mask in a checkpoint: the compiler would otherwise store it for the backward pass."""

    def masked(inputs: Tensor, keys: Tensor) -> Tensor:
        return _masked(inputs, Draw(keys, sample_dim), threshold, whole_channels)

    dropped: Tensor = checkpoint(masked, inputs, keys, use_reentrant=False, preserve_rng_state=False)
    return dropped


def _masked(inputs: Tensor, draw: Draw, threshold: int, whole_channels: bool) -> Tensor:
    """Multiplies by 0 for dropped elements and by 1 / (kept share) for others."""
    shape = channel_shape(inputs.shape) if whole_channels else inputs.shape
    scale = NUM_LEVELS / (NUM_LEVELS - threshold)
    is_kept = levels_in(shape, draw) >= threshold - NUM_LEVELS // 2
    return inputs * is_kept.to(inputs.dtype).mul_(scale)


def channel_shape(shape: torch.Size) -> torch.Size:
    """The shape with one element per channel of every sample."""
    return torch.Size([*shape[:2], *(1 for _ in shape[2:])])
