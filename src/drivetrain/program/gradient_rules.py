"""What is done to the summed gradient before the optimiser step: unscaling, L2 penalty, clipping."""

from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

__all__ = ["GradientRules", "add_l2_", "are_finite", "clip_norm_"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRules:
    """The settings of what is done to the gradient before the optimiser step.

    `loss_scaling` is the fixed factor by which the loss was multiplied.
    """

    loss_scaling: float = 0.0
    l2_regularization: float = 0.0
    clip_norm: float | None = None

    @property
    def advice_on_overflow(self) -> str:
        """What a user can try if the gradient is not finite."""
        if self.loss_scaling > 1:
            return "try a smaller --loss-scaling, --loss-scaling dynamic, or a lower --learning-rate"
        return "try a lower --learning-rate or --clip-norm 1"


@torch.no_grad()
def add_l2_(gradients: Tensor, values: Tensor, *, factor: float) -> None:
    """Adds the gradient of the L2 penalty: factor x weight."""
    gradients.add_(values, alpha=factor)


@torch.no_grad()
def are_finite(values: Tensor) -> Tensor:
    """Whether all values are finite; the minimum and maximum tell it without a temporary vector."""
    if not values.numel():
        return torch.ones((), dtype=torch.bool, device=values.device)
    return torch.isfinite(torch.stack(torch.aminmax(values))).all()


@torch.no_grad()
def clip_norm_(gradients: Tensor, *, longest: float, parts: ReplicaGroup = ALONE) -> None:
    """Clips the norm of the whole gradient to `longest`, without synchronising the device.

    The ranks in `parts` hold a part of the gradient each.
    """
    norm = torch.linalg.vector_norm(gradients)
    if parts.size > 1:
        square = norm.double().square_() if gradients.device.type == "cpu" else norm.square()
        parts.sum_(square)
        norm = square.sqrt().to(gradients.dtype)
    # The epsilon of torch.nn.utils.clip_grad_norm_, so that both clip alike.
    gradients.mul_((longest / (norm + 1e-6)).clamp_(max=1.0))
