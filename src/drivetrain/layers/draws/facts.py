"""What a rehearsal found out about the random draws of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DRAWS_OBSTACLE", "DrawFacts"]

DRAWS_OBSTACLE = "the model draws random numbers, or uses torch.utils.checkpoint, in its own code"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawFacts:
    """Where a model draws, besides its known layers.

    `places` are the names of modules whose own code draws ('' is the model itself), with True for those that
    must run on seeded generators. `by_micro_batch` describes the draws that belong to a micro-batch, as they
    come from generators, not to a sample. `sample_dims` is that of `UpdateContext`.
    """

    places: Mapping[str, bool] = field(default_factory=dict)
    by_micro_batch: tuple[str, ...] = ()
    sample_dims: Mapping[tuple[int, int], int | None] = field(default_factory=dict)
    uses_checkpoint: bool = False

    @property
    def needs_places(self) -> bool:
        """Whether a pass has to be watched."""
        return bool(self.places) or self.uses_checkpoint
