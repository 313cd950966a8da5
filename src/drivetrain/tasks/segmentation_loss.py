"""How much each part of a segmentation loss counts, and what it weighs each pixel by."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossShares:
    """The factors of cross-entropy and of 1 - soft Dice in the loss."""

    cross_entropy: float
    dice: float


def pixel_factors(
    classes: Tensor,
    codes: Tensor | None,
    *,
    class_weights: Tensor | None,
    border_weight: float,
    dtype: torch.dtype,
) -> Tensor | None:
    """Each pixel's share of its sample's cross-entropy (samples, pixels), summing to 1; None: all alike.

    A pixel weighs its class's weight, or 1, and what its border code stands for: 255 is `border_weight`.
    """
    weights = None if class_weights is None else class_weights.to(dtype)[classes.long()]
    if codes is not None and border_weight:
        border = codes.to(dtype) * (border_weight / 255)
        weights = border + (1 if weights is None else weights)
    if weights is None:
        return None
    total = weights.sum(1, keepdim=True)
    # A sample whose pixels all weigh nothing has no cross-entropy.
    return weights / total.masked_fill(total == 0, 1)
