"""What every optimiser is: a rule that moves one flat vector of weights."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from drivetrain.optim.flat_parameters import Segment

__all__ = ["BuildOptimiser", "Optimiser"]


class Optimiser(Protocol):
    """Moves the weights; its `states` are flat tensors of the same layout, named for checkpoints."""

    @property
    def states(self) -> dict[str, Tensor]:
        """By name; whoever writes into them changes the optimiser."""

    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        """One weight update in place; `rate` and `update` are on the device, nothing is fetched."""


class BuildOptimiser(Protocol):
    """Makes the optimiser of a flat vector of weights, or of a part of one."""

    def __call__(self, *, values: Tensor, segments: Sequence[Segment]) -> Optimiser:
        """For weights laid out like `values`, in which `segments` lie."""
