"""Dropout whose mask is a function of (seed, layer, update, sample, element) and is never stored.

The backward pass computes the mask again, so no mask takes memory. A draw has 16 bits: the rate is rounded to
a multiple of 1/65536, and kept values are scaled by the rounded rate.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from drivetrain.core.element_hash import GOLDEN_SIGNED, NUM_LEVELS, draw_levels, mix_words, signed
from drivetrain.core.randomness import MULTIPLIER_1, stream_key
from drivetrain.layers.context import UpdateContext
from drivetrain.models.modules import replace_modules


class CounterDropout(nn.Module):
    """Replaces nn.Dropout (drops elements) and nn.Dropout1d, 2d and 3d (drop whole channels)."""

    def __init__(self, *, rate: float, key: int, context: UpdateContext, whole_channels: bool) -> None:
        super().__init__()
        self.threshold = round(rate * NUM_LEVELS)
        self.key = signed(key)
        self.context = context
        self.whole_channels = whole_channels

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return inputs
        if self.threshold == NUM_LEVELS:
            return torch.zeros_like(inputs)
        samples = len(self.context.slots)
        if len(inputs) % samples:
            # The first dimension is not the samples, so no draw can belong to a sample. torch's generator,
            # seeded for each micro-batch, must do.
            return nn.functional.dropout(inputs, self.threshold / NUM_LEVELS)
        if len(inputs) != samples:
            return self._drop(inputs.reshape(samples, -1)).reshape(inputs.shape)
        return self._drop(inputs)

    def _drop(self, inputs: Tensor) -> Tensor:
        key = self._next_key()
        sample_keys = mix_words(
            mix_words(self.context.update * GOLDEN_SIGNED + key) + self.context.slots * GOLDEN_SIGNED
        )
        if torch.compiler.is_compiling():
            return _drop_compiled(inputs, sample_keys, self.threshold, self.whole_channels)
        dropped: Tensor = _Drop.apply(inputs, sample_keys, self.threshold, self.whole_channels)  # type: ignore[no-untyped-call]
        return dropped

    def _next_key(self) -> int:
        """The key of this use: a layer that runs several times in one pass has another mask each time."""
        uses = self.context.count_use(self.key)
        return signed((self.key + uses * MULTIPLIER_1) % (1 << 64))

    def extra_repr(self) -> str:
        return f"rate={self.threshold / NUM_LEVELS}"


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, sample_keys: Tensor, threshold: int, whole_channels: bool
    ) -> Tensor:
        ctx.save_for_backward(sample_keys)
        ctx.threshold, ctx.whole_channels = threshold, whole_channels
        return _masked(inputs, sample_keys, threshold, whole_channels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (sample_keys,) = ctx.saved_tensors
        (gradient,) = gradients
        return (
            _masked(gradient, sample_keys, ctx.threshold, ctx.whole_channels),
            None,
            None,
            None,
        )


def _drop_compiled(inputs: Tensor, sample_keys: Tensor, threshold: int, whole_channels: bool) -> Tensor:
    """Wraps the mask in a checkpoint: the compiler would otherwise store it for the backward pass."""
    dropped: Tensor = checkpoint(
        _masked, inputs, sample_keys, threshold, whole_channels, use_reentrant=False, preserve_rng_state=False
    )
    return dropped


def _masked(inputs: Tensor, sample_keys: Tensor, threshold: int, whole_channels: bool) -> Tensor:
    return inputs * _scaled_mask(inputs, sample_keys, threshold, whole_channels)


def _scaled_mask(like: Tensor, sample_keys: Tensor, threshold: int, whole_channels: bool) -> Tensor:
    """0 for dropped elements, 1 / (kept share) for others; elements are numbered channels last."""
    shape = _drawn_shape(like.shape, whole_channels=whole_channels)
    per_sample = shape[1:].numel()
    draws = draw_levels(sample_keys, per_sample)
    scale = NUM_LEVELS / (NUM_LEVELS - threshold)
    mask = (draws >= threshold - NUM_LEVELS // 2).to(like.dtype).mul_(scale)
    if len(shape) == 2:
        return mask.view(shape)
    channels_last = mask.view(shape[0], *shape[2:], shape[1])
    return channels_last.movedim(-1, 1)


def _drawn_shape(shape: torch.Size, *, whole_channels: bool) -> torch.Size:
    if not whole_channels:
        return shape
    return torch.Size([*shape[:2], *(1 for _ in shape[2:])])


def install_counter_dropout(model: nn.Module, *, seed: int, context: UpdateContext) -> int:
    """Replaces the dropout layers of a model; returns their number."""

    def replacement(name: str, module: nn.Module) -> nn.Module | None:
        if type(module) not in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
            return None
        assert isinstance(module, nn.modules.dropout._DropoutNd)
        return CounterDropout(
            rate=module.p,
            key=stream_key(seed, "dropout", name),
            context=context,
            whole_channels=not isinstance(module, nn.Dropout),
        )

    return replace_modules(model, replacement)
