"""Random horizontal flip."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import draw_per_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizontalFlip:
    """Every second image, on average, is mirrored left to right."""

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """1 where the image is mirrored, else 0."""
        numbers = draw_per_sample(seed, "flip", passes=passes, indices=indices)
        return (numbers < 0.5).astype(np.float64)[..., np.newaxis]

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The images, some of them mirrored."""
        is_mirrored = draws[:, 0, None, None, None] > 0
        return torch.where(is_mirrored, images.flip(3), images)
