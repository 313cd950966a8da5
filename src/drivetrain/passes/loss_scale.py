"""Dynamic loss scaling that never synchronises with the CPU.

All its state is on the device. An update whose gradient is not finite is skipped and halves the scale; after
many good updates in a row the scale doubles.
"""

import torch
from torch import Tensor

from drivetrain.recipe.params import LARGEST_LOSS_SCALE

__all__ = ["SMALLEST_SCALE", "DynamicLossScale"]

# The largest power of two in float16. Too high costs one skipped update per halving; too low would take
# UPDATES_TO_GROWTH updates per doubling.
FIRST_SCALE = 2.0**15
# If gradients overflow even at this scale, the scale is not the cause.
SMALLEST_SCALE = 2.0**-24
# Each doubling may overflow and lose an update: at most about one in so many. torch.amp.GradScaler has the
# same default.
UPDATES_TO_GROWTH = 2000


class DynamicLossScale:
    """`scale` is the loss scale of the current update; `skips` is set if its gradient is not finite."""

    def __init__(
        self,
        device: torch.device,
        *,
        first: float = FIRST_SCALE,
        updates_to_growth: int = UPDATES_TO_GROWTH,
    ) -> None:
        self.scale = torch.full((), first, dtype=torch.float32, device=device)
        self.good_updates = torch.zeros((), dtype=torch.int64, device=device)
        self.skips = torch.zeros((), dtype=torch.bool, device=device)
        self._updates_to_growth = updates_to_growth

    @property
    def states(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint; writing to them changes the scale."""
        return {"loss_scaling/scale": self.scale, "loss_scaling/good_updates": self.good_updates}

    @torch.no_grad()
    def judge(self, is_bad: Tensor) -> None:
        """Sets whether the gradient of the current update is not finite."""
        self.skips.copy_(is_bad)

    @torch.no_grad()
    def take_out_(self, gradients: Tensor) -> None:
        """Divides the gradient by the scale, in place."""
        gradients.div_(self.scale)

    @torch.no_grad()
    def move(self) -> None:
        """Adapts the scale for the next update."""
        good = torch.where(self.skips, 0, self.good_updates + 1)
        grows = good >= self._updates_to_growth
        larger = torch.where(grows, 2.0 * self.scale, self.scale).clamp(max=LARGEST_LOSS_SCALE)
        smaller = (0.5 * self.scale).clamp(min=0.5 * SMALLEST_SCALE)
        self.scale.copy_(torch.where(self.skips, smaller, larger))
        self.good_updates.copy_(torch.where(grows, 0, good))
