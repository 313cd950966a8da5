"""What every optimiser is: a rule that moves one flat vector of weights."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from drivetrain.optim.adam import Adam
from drivetrain.optim.lars import Lars
from drivetrain.optim.sgd import Sgd
from drivetrain.program.flat_parameters import Segment
from drivetrain.recipe.schema import Recipe


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


def build_optimiser(recipe: Recipe, *, values: Tensor, segments: Sequence[Segment]) -> Optimiser:
    """The optimiser a recipe asks for, for weights laid out like `values`, in which `segments` lie."""
    params = recipe.optimizer_params
    if recipe.optimizer == "sgd":
        return Sgd(values, momentum=params.momentum or 0.0, weight_decay=recipe.weight_decay)
    if recipe.optimizer == "lars":
        return Lars(
            values,
            segments=segments,
            momentum=params.momentum or 0.0,
            weight_decay=params.weight_decay or 0.0,
            eeta=params.eeta or 0.0,
            epsilon=params.epsilon or 0.0,
        )
    return Adam(
        values,
        beta1=0.9 if params.beta1 is None else params.beta1,
        beta2=0.999 if params.beta2 is None else params.beta2,
        epsilon=1e-8 if params.epsilon is None else params.epsilon,
        weight_decay=recipe.weight_decay,
    )
