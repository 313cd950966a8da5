"""Rounds to 16 bits so that the mean is kept: up or down by a draw, the nearer neighbour the more often.

The draw of an element is a function of (key, update, element), so there is no generator state, and a tensor
rounded in parts, each with its `first_element`, has the bits of one rounded whole. Numbers that the 16-bit
type holds stay as they are. Beyond its largest finite number no draw is made: a number becomes what a plain
cast makes of it, the largest one or infinity, so that an overflow is seen. Infinities and NaN stay.

float32 to bfloat16 is without any bias. Elsewhere a distance to the neighbour is seen to 2**-24 of a step,
which is all of it for normal float16 numbers made of float32.
"""

import math

import torch
from torch import Tensor

from drivetrain.core.element_hash import GOLDEN_SIGNED, NUM_LEVELS, draw_levels, mix_words, signed

__all__ = ["round_stochastically"]

_LEVELS_PER_WORD = 4
_NUM_FINE_LEVELS = 1 << 24
_BFLOAT16_BITS = -NUM_LEVELS
# Of a floating type: integers of its size, the bits before the exponent, the exponent's mask and zero point.
_FORMATS = {
    torch.float32: (torch.int32, 23, 0xFF, 127),
    torch.float64: (torch.int64, 52, 0x7FF, 1023),
}


@torch.no_grad()
def round_stochastically(
    values: Tensor, *, dtype: torch.dtype, key: int, update: int | Tensor, first_element: int = 0
) -> Tensor:
    """The float32 or float64 values in the 16-bit `dtype`; elements count from `first_element`, row by row.

    `key` comes from `stream_key(seed, purpose, ...)`. Under capture `update` is an int64 tensor of one number
    on the device; nothing is fetched from there.
    """
    rounded = values.clone()
    _snap_(rounded, dtype=dtype, key=key, update=update, first_element=first_element)
    return rounded.to(dtype)


def _snap_(values: Tensor, *, dtype: torch.dtype, key: int, update: int | Tensor, first_element: int) -> None:
    """Moves each value to one of its neighbours in `dtype`, in place."""
    keys = _update_key(key, update, device=values.device)
    # False for NaN too.
    in_range = values.abs() <= torch.finfo(dtype).max
    if dtype == torch.bfloat16 and values.dtype == torch.float32:
        snapped = _cut_bits(values, _draws(keys, values, first_element))
    else:
        snapped = _step_down_or_up(values, _fine_draws(keys, values, first_element), dtype=dtype)
    torch.where(in_range, snapped, values, out=values)


def _cut_bits(values: Tensor, draws: Tensor) -> Tensor:
    """bfloat16 is the upper half of a float32: a draw is added to the lower half, which is then cut off."""
    return draws.add_(values.view(torch.int32)).bitwise_and_(_BFLOAT16_BITS).view(torch.float32)


def _step_down_or_up(values: Tensor, draws: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Counts in steps of `dtype`; all but the draw is exact, as steps are powers of two."""
    steps = _step_sizes(values, dtype=dtype)
    # A product is exact everywhere, while compilers may divide approximately.
    counts = values * _inverse(steps)
    whole = counts.trunc()
    rests = counts.sub_(whole).mul_(_NUM_FINE_LEVELS).abs_()
    ups = torch.ge(rests, draws, out=rests)
    return whole.add_(ups.copysign_(values)).mul_(steps)


def _step_sizes(values: Tensor, *, dtype: torch.dtype) -> Tensor:
    """The distance of neighbours in `dtype` at each value; below the normal numbers it is constant."""
    integer, mantissa_bits, exponent_mask, zero = _FORMATS[values.dtype]
    target = torch.finfo(dtype)
    smallest, step = (int(math.log2(size)) for size in (target.smallest_normal, target.eps))
    exponents = (values.view(integer) >> mantissa_bits).bitwise_and_(exponent_mask)
    exponents.clamp_(min=smallest + zero).add_(step)
    return exponents.bitwise_left_shift_(mantissa_bits).view(values.dtype)


def _inverse(powers: Tensor) -> Tensor:
    integer, mantissa_bits, _, zero = _FORMATS[powers.dtype]
    return (2 * zero * (1 << mantissa_bits) - powers.view(integer)).view(powers.dtype)


def _update_key(key: int, update: int | Tensor, *, device: torch.device) -> Tensor:
    number = update if isinstance(update, Tensor) else torch.full((1,), update, device=device)
    return mix_words(number.view(1) * GOLDEN_SIGNED + signed(key % (1 << 64)))


def _draws(keys: Tensor, like: Tensor, first_element: int) -> Tensor:
    """A number of 16 bits for each element, as int32."""
    return (
        _levels(keys, like.numel(), first=first_element)
        .view(like.shape)
        .to(torch.int32)
        .add_(NUM_LEVELS // 2)
    )


def _fine_draws(keys: Tensor, like: Tensor, first_element: int) -> Tensor:
    """A number of 1 to 2**24 for each element, made of two levels."""
    pairs = _levels(keys, 2 * like.numel(), first=2 * first_element).contiguous().view(torch.int32)
    return (pairs.view(like.shape) >> 8).bitwise_and_(_NUM_FINE_LEVELS - 1).add_(1)


def _levels(keys: Tensor, count: int, *, first: int) -> Tensor:
    # A key moved on by whole words draws what follows them.
    words, within = divmod(first, _LEVELS_PER_WORD)
    moved = keys + signed(words * (GOLDEN_SIGNED % (1 << 64)) % (1 << 64))
    return draw_levels(moved, within + count)[0, within:]
