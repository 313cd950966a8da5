"""Keys for random numbers per element: they travel with the few numbers that are drawn per sample."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.element_hash import GOLDEN_SIGNED, mix_words
from drivetrain.data.augment.technique import draw_per_sample

KEY_COLUMNS = 2
# Draws are float32, which holds whole numbers of so many bits.
_BITS_PER_COLUMN = 24


def draw_keys(
    seed: int, purpose: str, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A 48-bit key per sample, in two whole numbers."""
    halves = [
        draw_per_sample(seed, f"{purpose} key {half}", passes=passes, indices=indices)
        for half in range(KEY_COLUMNS)
    ]
    return np.floor(np.stack(halves, axis=-1) * float(2**_BITS_PER_COLUMN))


def keys_from(draws: Tensor) -> Tensor:
    """The int64 keys whose halves are in the two columns of `draws`."""
    high, low = draws.to(torch.int64).unbind(1)
    return mix_words((high * 2**_BITS_PER_COLUMN + low) * GOLDEN_SIGNED)
