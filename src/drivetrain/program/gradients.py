"""What happens to the summed gradient before the optimiser sees it."""

import torch
from torch import Tensor


@torch.no_grad()
def add_l2_(gradients: Tensor, values: Tensor, *, factor: float) -> None:
    """Adds the gradient of factor/2 x the weights' squared length."""
    gradients.add_(values, alpha=factor)


@torch.no_grad()
def clip_norm_(gradients: Tensor, *, longest: float) -> None:
    """Shortens the whole gradient to at most `longest`, without fetching its length."""
    norm = torch.linalg.vector_norm(gradients)
    gradients.mul_((longest / (norm + 1e-6)).clamp_(max=1.0))
