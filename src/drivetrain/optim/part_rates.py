"""An optimiser that gives parts of the flat weights learning rates of their own.

Consecutive parameters with the same rate form a part, which the plain optimiser updates by itself. So an
update is that of the plain optimiser on each part, bit by bit, and takes no memory of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.optim.chunks import segments_inside
from drivetrain.optim.flat_parameters import Segment
from drivetrain.optim.rules import BuildOptimiser, Optimiser

__all__ = ["PartRate", "PartedOptimiser", "hold_back_", "parts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRate:
    """`factor` times the learning rate of the training; 0 before the update `first`, counted from 0.

    The optimiser begins with that update: Adam's corrections count from there.
    """

    factor: float = 1.0
    first: int = 0

    def of(self, rate: Tensor, *, update: Tensor) -> Tensor:
        """The rate of this part at an update."""
        own = rate if self.factor == 1.0 else rate * self.factor
        return own if self.first == 0 else torch.where(update < self.first, 0.0, own)

    def count(self, update: Tensor) -> Tensor:
        """The number of the update, counted from the first one of this part."""
        return update if self.first == 0 else (update - self.first).clamp(min=0)


_OF_THE_TRAINING = PartRate()


@dataclass(frozen=True, slots=True)
class _Part:
    place: slice
    rate: PartRate
    optimiser: Optimiser


class PartedOptimiser:
    """Updates every part as the optimiser that `build` makes would update it alone at the rate of the part.

    `rates` holds the parameters with a rate of their own, by name. Before the first update of a part its
    gradient must be zero (`hold_back_`).
    """

    def __init__(
        self,
        build: BuildOptimiser,
        *,
        values: Tensor,
        segments: Sequence[Segment],
        rates: Mapping[str, PartRate],
    ) -> None:
        self.states: dict[str, Tensor] = dict(build(values=values, segments=segments).states)
        # Built on the meta device: a part's states are views into those of the whole.
        outline = torch.empty(len(values), dtype=values.dtype, device="meta")
        self._parts = [
            _Part(place, rate, build(values=outline[place], segments=segments_inside(segments, place)))
            for place, rate in parts_of(segments, rates, end=len(values))
        ]

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        for part in self._parts:
            rule, place = part.optimiser, part.place
            outlines = dict(rule.states)
            rule.states.update({name: state[place] for name, state in self.states.items()})
            rule.step(
                values=values[place],
                gradients=gradients[place],
                rate=part.rate.of(rate, update=update),
                update=part.rate.count(update),
            )
            rule.states.update(outlines)


def parts_of(
    segments: Sequence[Segment], rates: Mapping[str, PartRate], *, end: int
) -> list[tuple[slice, PartRate]]:
    """The parts of a flat vector that ends at `end`: consecutive parameters with equal rates, joined.

    There are none on a rank whose stages are frozen.
    """
    starts: list[tuple[int, PartRate]] = []
    for segment in segments:
        rate = rates.get(segment.name, _OF_THE_TRAINING)
        if not starts or rate != starts[-1][1]:
            starts.append((segment.start, rate))
    ends = [*(start for start, _ in starts), end][1:]
    return [(slice(start, stop), rate) for (start, rate), stop in zip(starts, ends, strict=True)]


@torch.no_grad()
def hold_back_(gradients: Tensor, *, parts: Sequence[tuple[slice, PartRate]], update: Tensor) -> None:
    """Sets the gradients of parts that have not begun to zero, whatever they are."""
    for place, rate in parts:
        gradients[place].masked_fill_(update < rate.first, 0.0)
