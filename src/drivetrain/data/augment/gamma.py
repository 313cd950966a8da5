"""Random gamma of images."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.draws import draw_around_zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Values, which go from -1 to 1, as if from 0 to 1, to a power of 1 - `spread` to 1 + `spread`."""

    spread: float

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The power of each sample."""
        return 1 + draw_around_zero(seed, "gamma", spread=self.spread, passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Brighter or darker images; black and white stay."""
        # In double precision on a CPU: its vectorised and scalar float32 powers differ in the last bit.
        dtype = torch.float64 if images.device.type == "cpu" else torch.float32
        power = draws[:, :, None, None].to(dtype)
        shares = images.to(dtype, copy=True).add_(1).mul_(0.5).clamp_(0, 1)
        return shares.pow_(power).mul_(2).sub_(1).to(torch.float32), labels
