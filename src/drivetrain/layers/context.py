"""What layers need to know about the update they run in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class UpdateContext:
    """The current update, and the positions of a micro-batch's samples in the global batch.

    Layers such as dropout read it instead of a generator, so that the draws of a sample do not depend on the
    layout (replicas, stages, accumulation).
    """

    def __init__(self, device: torch.device) -> None:
        self.update: Tensor = torch.zeros((), dtype=torch.int64, device=device)
        self.slots: Tensor = torch.zeros(1, dtype=torch.int64, device=device)
        # Cleared for every pass, not counted up: torch.compile guards on the content and would compile again.
        self.uses: dict[int, int] = {}

    def begin_forward(self, slots: Tensor) -> None:
        """Starts the forward pass of a micro-batch whose samples have these positions."""
        self.slots = slots
        self.uses.clear()

    def count_use(self, layer: int) -> int:
        """Returns how often a layer ran before in this forward pass, and counts this use."""
        before = self.uses.get(layer, 0)
        self.uses[layer] = before + 1
        return before

    @contextmanager
    def undone_where_failing(self) -> Iterator[None]:
        """Undoes the counts of the block if it fails, as it then runs again."""
        before = dict(self.uses)
        try:
            yield
        except BaseException:
            self.uses.clear()
            self.uses.update(before)
            raise
