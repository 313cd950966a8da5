"""An optimiser that moves wide copies of weights and states, and takes them over rounded, or not at all.

Weights of 16 bits are moved by arithmetic in 32 bits: each chunk of them is widened with its states, moved by
the plain rule, and rounded back, to the nearest number or by a draw. A draw belongs to (seed, update, element
of the whole model), so that it is the same whatever the cut. Where an update is to be skipped, a flag on the
device decides that nothing is taken over; nothing is fetched from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.models.half_weights import is_half, widened
from drivetrain.optim.chunks import MOST_CHUNK_BYTES, Chunk, cut_into_chunks, segments_inside
from drivetrain.optim.flat_parameters import Segment
from drivetrain.optim.rules import BuildOptimiser
from drivetrain.optim.stochastic_rounding import round_stochastically

__all__ = ["RoundedOptimiser"]

# Squares of small gradients are 0 in float16, and 8 bits lose the mean of a thousand of them.
_WIDE_STATES = ("square",)


@dataclass(frozen=True, slots=True)
class _Run:
    """Elements that follow each other in the whole model too, and the place of the first one there."""

    part: slice
    first_element: int


class RoundedOptimiser:
    """Moves weights as what `build` makes would move wide ones.

    `states` are of the weights' type, but for the squares of Adam. With a `key`, 16-bit weights are rounded
    by draws; where the flag `skips` is set, weights and states stay as they are.
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
        # Built for weights without memory: the states of the rules are copies that last for one step.
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
