"""Random numbers per sample and purpose, different in every pass over the data."""

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_uniform, stream_key


def draw_per_sample(
    seed: int, purpose: str, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """One number of [0, 1) per sample and purpose, another in every pass over the data."""
    numbers = np.empty(indices.shape, dtype=np.float64)
    for number in np.unique(passes).tolist():
        here = passes == number
        numbers[here] = draw_uniform(stream_key(seed, purpose, number), indices[here])
    return numbers


def draw_around_zero(
    seed: int, purpose: str, *, spread: float, passes: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """One number of [-spread, spread) per sample, as the one column of a technique."""
    numbers = draw_per_sample(seed, purpose, passes=passes, indices=indices)
    return (spread * (2 * numbers - 1))[..., np.newaxis]
