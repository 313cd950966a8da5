"""What a rehearsal found out about the random draws of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drivetrain.layers.context import NO_SAMPLES

__all__ = ["DRAWS_OBSTACLE", "DrawFacts"]

DRAWS_OBSTACLE = "the model draws random numbers, or uses torch.utils.checkpoint, in its own code"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawFacts:
    """Where a model draws, besides its known layers.

    `places` are the names of modules whose own code draws ('' is the model itself), with True for those that
    must run on seeded generators. `by_micro_batch` describes the draws that belong to a micro-batch, as they
    come from generators, not to a sample. `sample_dims` is that of `UpdateContext`. `failure`: why the
    model could not be rehearsed.
    """

    places: Mapping[str, bool] = field(default_factory=dict)
    by_micro_batch: tuple[str, ...] = ()
    sample_dims: Mapping[tuple[int, int], int | None] = field(default_factory=dict)
    uses_checkpoint: bool = False
    failure: str = ""

    @property
    def belong_to_micro_batches(self) -> bool:
        """Whether any draw depends on which samples are computed together."""
        return bool(self.by_micro_batch) or NO_SAMPLES in self.sample_dims.values()

    @property
    def needs_places(self) -> bool:
        """Whether a pass has to be watched."""
        return bool(self.places) or self.uses_checkpoint
