"""What every augmentation technique offers, and how its random numbers are addressed."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.program.randomness import draw_uniform, stream_key


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


def draw_per_sample(
    seed: int, purpose: str, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """One number of [0, 1) per sample and purpose, another in every pass over the data."""
    numbers = np.empty(indices.shape, dtype=np.float64)
    for number in np.unique(passes).tolist():
        here = passes == number
        numbers[here] = draw_uniform(stream_key(seed, purpose, number), indices[here])
    return numbers
