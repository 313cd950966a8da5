"""Random noise on images."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.element_hash import draw_gaussian
from drivetrain.data.augment.element_keys import KEY_COLUMNS, draw_keys, keys_from
from drivetrain.data.preprocess import channels_last_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Adds a normal number of this deviation to every value; each is a hash of (sample's key, place)."""

    deviation: float

    @property
    def columns(self) -> int:
        return KEY_COLUMNS

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The key of each sample's noise."""
        return draw_keys(seed, "noise", passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Noisy images."""
        samples, channels, height, width = images.shape
        numbers = draw_gaussian(keys_from(draws), channels * height * width).mul_(self.deviation)
        return channels_last_view(numbers.view(samples, height, width, channels)).add_(images), labels
