"""An optimiser for 16-bit weights: it computes in 32 bits and rounds to nearest or stochastically.

Each chunk of weights is widened together with its state, updated by the plain optimiser and rounded back. The
draw of stochastic rounding is a function of (seed, update, element of the whole model), so it is the same for
any layout (replicas, stages, accumulation). A flag on the device skips an update, without synchronising the
host.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.core.element_hash import GOLDEN_SIGNED, NUM_LEVELS, draw_levels, mix_words, signed
from drivetrain.models.half_weights import is_half, widened
from drivetrain.optim.chunks import MOST_CHUNK_BYTES, Chunk, cut_into_chunks, segments_inside
from drivetrain.optim.flat_parameters import Segment
from drivetrain.optim.rules import BuildOptimiser

__all__ = ["RoundedOptimiser", "round_stochastically"]

# As in core/element_hash.py: a hash of 64 bits gives four levels of 16 bits.
_LEVELS_PER_WORD = 4
# Whole numbers up to 2**24 are exact in float32, the narrowest type in which draws are compared.
_NUM_FINE_LEVELS = 1 << 24
_BFLOAT16_BITS = -NUM_LEVELS
# Per floating type: the integer type of its size, the mantissa bits, the mask and the bias of the exponent.
_FORMATS = {
    torch.float32: (torch.int32, 23, 0xFF, 127),
    torch.float64: (torch.int64, 52, 0x7FF, 1023),
}
# The second moment of Adam stays wide: squares of small gradients are 0 in float16, and the 8 bits of
# bfloat16 cannot hold a mean over a thousand of them.
_WIDE_STATES = ("square",)


# Stochastic rounding keeps the mean: a value is rounded up or down by a draw, to the nearer neighbour more
# often.
#
# The draw of an element is a function of (key, update, element), so there is no generator state, and a tensor
# rounded in parts, each with its `first_element`, has the bits of one rounded whole. Numbers that the 16-bit
# type holds stay as they are. Beyond its largest finite number no draw is made: a number becomes what a plain
# cast makes of it, the largest one or infinity, so that an overflow is seen. Infinities and NaN stay.
#
# float32 to bfloat16 is without any bias. Elsewhere a distance to the neighbour is seen to 2**-24 of a step,
# which is all of it for normal float16 numbers made of float32.


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
    """Rounds each value to one of its neighbours in `dtype`, in place."""
    keys = _update_key(key, update, device=values.device)
    # False for NaN too.
    in_range = values.abs() <= torch.finfo(dtype).max
    if dtype == torch.bfloat16 and values.dtype == torch.float32:
        snapped = _cut_bits(values, _draws(keys, values, first_element))
    else:
        snapped = _step_down_or_up(values, _fine_draws(keys, values, first_element), dtype=dtype)
    torch.where(in_range, snapped, values, out=values)


def _cut_bits(values: Tensor, draws: Tensor) -> Tensor:
    """Adds a draw to the lower half of a float32 and cuts it off: the upper half is a bfloat16."""
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


@dataclass(frozen=True, slots=True)
class _Run:
    """Elements that follow each other in the whole model too, and the place of the first one there."""

    part: slice
    first_element: int


class RoundedOptimiser:
    """Updates weights as the optimiser that `build` makes would update wide ones.

    `states` have the type of the weights, except for the squares of Adam. With a `key`, 16-bit weights are
    rounded stochastically. If the flag `skips` is set, weights and states do not change.
    """

    def __init__(
        self,
        build: BuildOptimiser,
        *,
        values: Tensor,
        segments: Sequence[Segment],
        key: int | None = None,
        skips: Tensor | None = None,
        chunk_bytes: int = MOST_CHUNK_BYTES,
    ) -> None:
        self._key, self._skips = key, skips
        wide = torch.float32 if is_half(values.dtype) else values.dtype
        # Built on the meta device: the states of the plain optimisers are wide copies that last for one step.
        outline = torch.empty(len(values), dtype=wide, device="meta")
        self._chunks: list[Chunk] = []
        self._runs: list[list[_Run]] = []
        for part in cut_into_chunks(segments, end=len(values), most=chunk_bytes // wide.itemsize):
            inside = segments_inside(segments, part)
            self._chunks.append(Chunk(part, build(values=outline[part], segments=inside)))
            self._runs.append(_runs(inside, end=part.stop - part.start))
        self.states: dict[str, Tensor] = {
            name: torch.zeros_like(values, dtype=wide if name in _WIDE_STATES else values.dtype)
            for name in self._chunks[0].optimiser.states
        }

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        for chunk, runs in zip(self._chunks, self._runs, strict=True):
            weights, rule = values[chunk.part], chunk.optimiser
            states = {name: state[chunk.part] for name, state in self.states.items()}
            outlines = dict(rule.states)
            rule.states.update({name: _wide_copy(state) for name, state in states.items()})
            moved = _wide_copy(weights)
            rule.step(values=moved, gradients=widened(gradients[chunk.part]), rate=rate, update=update)
            self._take_over(weights, self._rounded(moved, weights.dtype, runs=runs, update=update))
            for name, state in states.items():
                self._take_over(state, rule.states[name])
            rule.states.update(outlines)

    def _take_over(self, target: Tensor, moved: Tensor) -> None:
        if self._skips is None:
            target.copy_(moved)
        else:
            target.copy_(torch.where(self._skips, target, moved.to(target.dtype)))

    def _rounded(self, moved: Tensor, dtype: torch.dtype, *, runs: Sequence[_Run], update: Tensor) -> Tensor:
        if self._key is None or moved.dtype == dtype:
            return moved
        parts = [
            round_stochastically(
                moved[run.part], dtype=dtype, key=self._key, update=update, first_element=run.first_element
            )
            for run in runs
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _wide_copy(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32) if is_half(tensor.dtype) else tensor.clone()


def _runs(segments: Sequence[Segment], *, end: int) -> list[_Run]:
    """The parameters of a chunk, joined where they follow each other in the whole model as they do here."""
    starts: list[Segment] = []
    for segment in segments:
        if not starts or segment.element - segment.start != starts[-1].element - starts[-1].start:
            starts.append(segment)
    ends = [*(segment.start for segment in starts[1:]), end]
    return [
        _Run(slice(segment.start, stop), segment.element) for segment, stop in zip(starts, ends, strict=True)
    ]
