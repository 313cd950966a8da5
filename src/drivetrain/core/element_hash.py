"""Random numbers per tensor element: a cheap hash of (key, element), computed on the tensor's device.

One 64-bit word gives four 16-bit levels. The same key gives the same levels on every device and in every
batch.
"""

from functools import lru_cache

import torch
from torch import Tensor

from drivetrain.core.randomness import GOLDEN, MULTIPLIER_1, MULTIPLIER_2

NUM_LEVELS = 1 << 16
_LEVELS_PER_WORD = 4


def signed(word: int) -> int:
    """An unsigned 64-bit word as the int64 with the same bits."""
    return word - (1 << 64) if word >= 1 << 63 else word


GOLDEN_SIGNED = signed(GOLDEN)
_GOLDEN_INVERSE = signed(pow(GOLDEN, -1, 1 << 64))
_MULTIPLIER_1 = signed(MULTIPLIER_1)
_MULTIPLIER_2 = signed(MULTIPLIER_2)


def mix_words(words: Tensor) -> Tensor:
    """The splitmix64 finaliser, applied to int64 words."""
    return _mix_(words.clone())


def draw_levels(keys: Tensor, per_key: int) -> Tensor:
    """Uniform 16-bit levels, as int16 from -32768, in a row of `per_key` for each int64 key."""
    num_words = -(-per_key // _LEVELS_PER_WORD)
    counters = torch.arange(1, num_words + 1, dtype=torch.int64, device=keys.device)
    # This is key + counter * golden, written as (key / golden + counter) * golden modulo 2^64:
    # torch.compile would fold a product with a counter into its index arithmetic, which overflows.
    words = _mix_((keys * _GOLDEN_INVERSE).unsqueeze(1).add(counters).mul_(GOLDEN_SIGNED))
    return words.view(torch.int16)[:, :per_key].contiguous()


def draw_gaussian(keys: Tensor, per_key: int) -> Tensor:
    """Standard normal float32 numbers, a row of `per_key` for each int64 key; all are within 4.4."""
    places = draw_levels(keys, per_key).to(torch.int32).add_(NUM_LEVELS // 2)
    levels: Tensor = _gaussian_levels(keys.device)
    return levels.index_select(0, places.view(-1)).view(places.shape)


def _gaussian_levels(device: torch.device) -> Tensor:
    # Two functions: torch.compile traces through lru_cache and would recompute the table in every call.
    return _gaussian_table(device)


# The effect of torch.compiler.assume_constant_result without importing the compiler, which takes over a
# second.
_gaussian_levels._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=8)
def _gaussian_table(device: torch.device) -> Tensor:
    """The median of each of NUM_LEVELS equally likely slices of the normal distribution.

    A table gives the same bits on every device; Box-Muller, with its logarithms and cosines, would not, and
    costs more.
    """
    shares = (torch.arange(NUM_LEVELS, dtype=torch.float64) + 0.5) / NUM_LEVELS
    medians: Tensor = torch.special.ndtri(shares)
    return medians.to(device, torch.float32)


def _mix_(words: Tensor) -> Tensor:
    """The finaliser, in place. torch's >> copies the sign bit, so the masks clear the copied bits."""
    words.bitwise_xor_((words >> 30).bitwise_and_((1 << 34) - 1)).mul_(_MULTIPLIER_1)
    words.bitwise_xor_((words >> 27).bitwise_and_((1 << 37) - 1)).mul_(_MULTIPLIER_2)
    return words.bitwise_xor_((words >> 31).bitwise_and_((1 << 33) - 1))
