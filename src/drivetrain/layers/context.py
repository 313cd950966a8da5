"""What layers need to know about the update they run in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["NO_SAMPLES", "ROWS_APART", "Moment", "UpdateContext", "Use"]

# In `sample_dims`: the first dimension holds several rows per sample, those of a sample not side by side but
# one after all other samples' (sequences first, then flattened; two views of a batch after each other).
ROWS_APART = -1
# In `sample_dims`: which elements belong to which sample is not known; the draw belongs to the micro-batch.
NO_SAMPLES = -2
# A draw of the model: the key of its layer or function, and how often that ran before in the forward pass.
Use = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in a forward pass, from which a part of it can be run again with the same draws."""

    slots: Tensor
    generator_key: int | None
    uses: dict[int, int]


class UpdateContext:
    """The current update, and the positions of a micro-batch's samples in the global batch.

    Layers such as dropout read it instead of a generator, so that the draws of a sample do not depend on the
    layout (replicas, stages, accumulation). `generator_key` is for layers that can only draw from generators:
    it belongs to the micro-batch, and is None where no Python code may seed them (a captured update).

    `sample_dims` says, for draws that are not laid out with the samples first, which dimension holds the
    samples; None if none does. While `shapes` is not None, layers write the shapes of their draws into it,
    and what they draw for into `inputs`, and draw nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self.update: Tensor = torch.zeros((), dtype=torch.int64, device=device)
        self.slots: Tensor = torch.zeros(1, dtype=torch.int64, device=device)
        self.generator_key: int | None = None
        # Cleared for every pass, not counted up: torch.compile guards on the content and would compile again.
        self.uses: dict[int, int] = {}
        self.sample_dims: dict[Use, int | None] = {}
        self.shapes: dict[Use, torch.Size] | None = None
        self.inputs: dict[Use, Tensor] = {}

    def begin_forward(self, slots: Tensor, *, generator_key: int | None = None) -> None:
        """Starts the forward pass of a micro-batch whose samples have these positions."""
        self.slots = slots
        self.generator_key = generator_key
        self.uses.clear()

    def count_use(self, layer: int) -> int:
        """Returns how often a layer ran before in this forward pass, and counts this use."""
        before = self.uses.get(layer, 0)
        self.uses[layer] = before + 1
        return before

    def now(self) -> Moment:
        """This point of the forward pass."""
        return Moment(self.slots, self.generator_key, dict(self.uses))

    @contextmanager
    def back_at(self, moment: Moment) -> Iterator[None]:
        """Draws inside the block are those that followed `moment`."""
        present = self.now()
        self._go_to(moment)
        try:
            yield
        finally:
            self._go_to(present)

    def _go_to(self, moment: Moment) -> None:
        self.slots, self.generator_key = moment.slots, moment.generator_key
        self.uses.clear()
        self.uses.update(moment.uses)

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
