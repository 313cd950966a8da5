"""Forced out-of-memory errors, for tests of what follows: they come where an environment variable says.

DRIVETRAIN_FORCED_SHORTAGE="rank=2 update=3 part=backward above=4": on rank 2, in the backward pass of the
first micro-batch of update 3 (counted from 0), while the micro-batch is larger than 4.
"""

import os
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.observer import Part

__all__ = ["FORCED_SHORTAGE", "ForcedShortage", "ShortageObserver", "forced_shortage"]

FORCED_SHORTAGE = "DRIVETRAIN_FORCED_SHORTAGE"
ShortagePart = Literal["forward", "backward", "optimiser", "validation"]
_PASSES = {"forward": (Kind.FORWARD,), "backward": (Kind.BACKWARD, Kind.INPUT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedShortage:
    """Where a rank runs out of memory; after `update` updates where the part is the validation."""

    rank: int
    update: int
    part: ShortagePart
    above: int

    def strike(self, part: ShortagePart, update: int) -> None:
        """Raises if this is where memory runs out."""
        if (part, update) == (self.part, self.update):
            raise torch.OutOfMemoryError(f"forced by {FORCED_SHORTAGE}")


def forced_shortage(*, rank: int, batch_size: int) -> ForcedShortage | None:
    """The shortage that this rank is to meet with micro-batches of this size, if any."""
    text = os.environ.get(FORCED_SHORTAGE)
    if text is None:
        return None
    words = dict(word.split("=") for word in text.split())
    part = next(name for name in get_args(ShortagePart) if name == words["part"])
    shortage = ForcedShortage(
        rank=int(words["rank"]), update=int(words["update"]), part=part, above=int(words["above"])
    )
    return shortage if shortage.rank == rank and batch_size > shortage.above else None


class ShortageObserver:
    """Runs out of memory in the passes or the optimiser step of an update."""

    sees_ends = False

    def __init__(self, shortage: ForcedShortage) -> None:
        self._shortage, self._update = shortage, -1

    def begins(self, device: int, action: Action) -> None:  # noqa: ARG002
        for part in ("forward", "backward"):
            if action.kind in _PASSES[part]:
                self._shortage.strike(part, self._update)

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        """Never called, because `sees_ends` is False."""

    def part_begins(self, update: int, part: Part) -> None:  # noqa: ARG002
        self._update = update

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:  # noqa: ARG002
        # Raised at the end: the weights have moved by then, and the update cannot be taken back.
        if part is Part.OPTIMISER:
            self._shortage.strike("optimiser", update)
