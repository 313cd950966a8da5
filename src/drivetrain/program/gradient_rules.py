"""What happens to the summed gradient before the optimiser sees it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

__all__ = ["GradientRules", "add_l2_", "are_finite", "clip_norm_"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRules:
    """What is done to the gradient between the backward passes and the optimiser.

    `loss_scaling` is the fixed factor that it was multiplied by.
    """

    loss_scaling: float = 0.0
    l2_regularization: float = 0.0
    clip_norm: float | None = None

    @property
    def advice_on_overflow(self) -> str:
        """What may help where numbers have become too large."""
        if self.loss_scaling > 1:
            return "try a smaller --loss-scaling, --loss-scaling dynamic, or a lower --learning-rate"
        return "try a lower --learning-rate or --clip-norm 1"


@torch.no_grad()
def add_l2_(gradients: Tensor, values: Tensor, *, factor: float) -> None:
    """Adds the gradient of factor/2 x the weights' squared length."""
    gradients.add_(values, alpha=factor)


@torch.no_grad()
def are_finite(values: Tensor) -> Tensor:
    """Whether all numbers of a vector are finite, without a second vector on the way."""
    if not values.numel():
        return torch.ones((), dtype=torch.bool, device=values.device)
    return torch.isfinite(torch.stack(torch.aminmax(values))).all()


@torch.no_grad()
def clip_norm_(gradients: Tensor, *, longest: float, parts: ReplicaGroup = ALONE) -> None:
    """Shortens the whole gradient, of which `parts` hold a part each, to at most `longest`.

    Nothing is fetched from the device.
    """
    norm = torch.linalg.vector_norm(gradients)
    if parts.size > 1:
        square = norm.double().square_() if gradients.device.type == "cpu" else norm.square()
        parts.sum_(square)
        norm = square.sqrt().to(gradients.dtype)
    gradients.mul_((longest / (norm + 1e-6)).clamp_(max=1.0))
