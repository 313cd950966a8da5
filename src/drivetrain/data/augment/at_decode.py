"""Training fetches of sources that may crop at random while they decode."""

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.source import AugmentingSource, Source


def augments_at_decode(source: Source) -> TypeGuard[AugmentingSource]:
    """Whether training images of this source differ from pass to pass."""
    return isinstance(source, AugmentingSource) and source.augments_at_decode


def fetch_for_training(
    source: Source, indices: NDArray[np.int64], *, passes: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The samples as training sees them in their passes; without chance at decoding, plain ones."""
    return source.fetch_augmented(indices, passes) if augments_at_decode(source) else source.fetch(indices)
