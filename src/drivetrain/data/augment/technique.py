"""What every augmentation technique offers, and how its random numbers are addressed."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.draws import draw_per_sample

__all__ = ["Technique", "draw_per_sample"]


class Technique(Protocol):
    """A random change of images: chance is drawn on the host, a few numbers per sample; pixels move anywhere.

    `apply` treats every image by its own numbers alone, so that no cut of a batch changes one.
    """

    @property
    def columns(self) -> int:
        """How many numbers one sample takes."""
        ...

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The numbers of each sample in its pass over the data, in a last axis of `columns`."""
        ...

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The changed images (samples, channels, height, width), given their numbers (samples, columns)."""
        ...
