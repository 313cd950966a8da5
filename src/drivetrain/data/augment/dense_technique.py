"""What every augmentation technique of images with masks offers."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class DenseTechnique(Protocol):
    """A random change of images and their labels; every pair is treated by its own numbers alone."""

    @property
    def columns(self) -> int:
        """How many numbers one sample takes."""
        ...

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The numbers of each sample in its pass over the data, in a last axis of `columns`."""
        ...

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Changed images (samples, channels, height, width) and labels (samples, height, width, channels)."""
        ...
