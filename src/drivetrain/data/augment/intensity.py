"""Random brightness of images."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.draws import draw_around_zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Brightness:
    """Adds one number of [-`spread`, `spread`) to a whole image, then clips to [-1, 1]."""

    spread: float = 0.2

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """What is added to each sample."""
        return draw_around_zero(seed, "dense brightness", spread=self.spread, passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Brighter or darker images."""
        return (images + draws[:, :, None, None]).clamp_(-1, 1), labels
