"""Dropout whose mask is a function of (seed, layer, update, sample, element) and is never stored.

The backward pass computes the mask again. Four 16-bit draws come from one 64-bit word, so a rate is
met to within 1/65536 and the kept values are scaled by the rate that is really met.
"""

from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.program.context import UpdateContext
from drivetrain.program.modules import replace_modules
from drivetrain.program.randomness import GOLDEN, MULTIPLIER_1, MULTIPLIER_2, stream_key

_LEVELS = 1 << 16
_DRAWS_PER_WORD = 4


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_GOLDEN = _signed(GOLDEN)
_MULTIPLIER_1 = _signed(MULTIPLIER_1)
_MULTIPLIER_2 = _signed(MULTIPLIER_2)


class CounterDropout(nn.Module):
    """Stands in for nn.Dropout (elements) and nn.Dropout2d (whole channels)."""

    def __init__(self, *, rate: float, key: int, context: UpdateContext, whole_channels: bool) -> None:
        super().__init__()
        self.threshold = round(rate * _LEVELS)
        self.key = _signed(key)
        self.context = context
        self.whole_channels = whole_channels
        self._forward_pass = 0
        self._uses = 0

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return inputs
        if self.threshold == _LEVELS:
            return torch.zeros_like(inputs)
        samples = len(self.context.slots)
        if len(inputs) % samples:
            # The first dimension holds no samples: the generator, set for each micro-batch, must do.
            return nn.functional.dropout(inputs, self.threshold / _LEVELS)
        if len(inputs) != samples:
            return self._drop(inputs.reshape(samples, -1)).reshape(inputs.shape)
        return self._drop(inputs)

    def _drop(self, inputs: Tensor) -> Tensor:
        key = self._next_key()
        sample_keys = _mix(_mix(self.context.update * _GOLDEN + key) + self.context.slots * _GOLDEN)
        dropped: Tensor = _Drop.apply(inputs, sample_keys, self.threshold, self.whole_channels)  # type: ignore[no-untyped-call]
        return dropped

    def _next_key(self) -> int:
        """A layer that runs several times in one forward pass has another mask each time."""
        if self._forward_pass != self.context.forward_passes:
            self._forward_pass, self._uses = self.context.forward_passes, 0
        self._uses += 1
        return _signed((self.key + (self._uses - 1) * MULTIPLIER_1) % (1 << 64))

    def extra_repr(self) -> str:
        return f"rate={self.threshold / _LEVELS}"


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, sample_keys: Tensor, threshold: int, whole_channels: bool
    ) -> Tensor:
        ctx.save_for_backward(sample_keys)
        ctx.threshold, ctx.whole_channels = threshold, whole_channels
        return inputs * _scaled_mask(inputs, sample_keys, threshold, whole_channels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (sample_keys,) = ctx.saved_tensors
        (gradient,) = gradients
        return (
            gradient * _scaled_mask(gradient, sample_keys, ctx.threshold, ctx.whole_channels),
            None,
            None,
            None,
        )


def _scaled_mask(like: Tensor, sample_keys: Tensor, threshold: int, whole_channels: bool) -> Tensor:
    """0 where an element is dropped, 1 / (share kept) elsewhere; elements count in channels-last order."""
    shape = _drawn_shape(like.shape, whole_channels=whole_channels)
    per_sample = shape[1:].numel()
    draws = _draw_levels(sample_keys, per_sample)
    scale = _LEVELS / (_LEVELS - threshold)
    mask = (draws >= threshold - _LEVELS // 2).to(like.dtype).mul_(scale)
    if len(shape) == 2:
        return mask.view(shape)
    channels_last = mask.view(shape[0], *shape[2:], shape[1])
    return channels_last.movedim(-1, 1)


def _drawn_shape(shape: torch.Size, *, whole_channels: bool) -> torch.Size:
    if not whole_channels:
        return shape
    return torch.Size([*shape[:2], *(1 for _ in shape[2:])])


def _draw_levels(sample_keys: Tensor, per_sample: int) -> Tensor:
    """One uniform 16-bit level, as int16, for each element of each sample."""
    num_words = -(-per_sample // _DRAWS_PER_WORD)
    counters = torch.arange(1, num_words + 1, dtype=torch.int64, device=sample_keys.device).mul_(_GOLDEN)
    words = _mix_(sample_keys.unsqueeze(1) + counters)
    return words.view(torch.int16)[:, :per_sample].contiguous()


def _mix(words: Tensor) -> Tensor:
    return _mix_(words.clone())


def _mix_(words: Tensor) -> Tensor:
    """splitmix64's finaliser on int64, in place; torch shifts arithmetically, hence the bit masks."""
    words.bitwise_xor_((words >> 30).bitwise_and_((1 << 34) - 1)).mul_(_MULTIPLIER_1)
    words.bitwise_xor_((words >> 27).bitwise_and_((1 << 37) - 1)).mul_(_MULTIPLIER_2)
    return words.bitwise_xor_((words >> 31).bitwise_and_((1 << 33) - 1))


def install_counter_dropout(model: nn.Module, *, seed: int, context: UpdateContext) -> int:
    """Replaces a model's dropout layers; returns how many there were."""

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
