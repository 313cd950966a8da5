"""What the layers of a model may need to know of the update they run in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class UpdateContext:
    """The current update and the places of the micro-batch's samples in the global batch.

    Layers with randomness read it instead of a generator, so that a sample's draw does not depend on
    how the global batch is cut.
    """

    def __init__(self, device: torch.device) -> None:
        self.update: Tensor = torch.zeros((), dtype=torch.int64, device=device)
        self.slots: Tensor = torch.zeros(1, dtype=torch.int64, device=device)
        # Cleared rather than counted on: compiled layers see the same state at the start of every pass.
        self.uses: dict[int, int] = {}

    def begin_forward(self, slots: Tensor) -> None:
        """Tells the layers that another micro-batch comes, and where its samples stand."""
        self.slots = slots
        self.uses.clear()

    def count_use(self, layer: int) -> int:
        """How often a layer ran before in this forward pass."""
        before = self.uses.get(layer, 0)
        self.uses[layer] = before + 1
        return before

    @contextmanager
    def undone_where_failing(self) -> Iterator[None]:
        """A block that counts no use where it fails, as it is then run again."""
        before = dict(self.uses)
        try:
            yield
        except BaseException:
            self.uses.clear()
            self.uses.update(before)
            raise
