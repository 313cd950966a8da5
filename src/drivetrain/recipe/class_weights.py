"""Class weights of the loss: parsing `--class-weights`, and scaling them to a mean of 1."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError

BALANCED = "balanced"


def parse_class_weights(given: Sequence[str]) -> list[float] | None:
    """The weights that were typed; None for `balanced`."""
    if list(given) == [BALANCED]:
        return None
    try:
        weights = [float(word) for text in given for word in text.replace(",", " ").split()]
    except ValueError:
        weights = []
    if not weights or min(weights) < 0 or max(weights) == 0 or not np.isfinite(weights).all():
        raise BadInputError(
            f"--class-weights is {' '.join(given)}, it must be balanced or a number of at least 0 per class; "
            "--class-weights balanced works."
        )
    return weights


def class_weights_of(
    given: Sequence[str], labels: NDArray[np.int64], *, num_classes: int
) -> NDArray[np.float32]:
    """One weight per class, scaled so that the weights of all training samples have mean 1.

    With that scaling the loss keeps its magnitude, so the learning rate need not change.
    """
    return _weights(given, np.bincount(labels, minlength=num_classes), num_classes=num_classes, of="sample")


def pixel_class_weights(
    given: Sequence[str], counts: NDArray[np.int64], *, num_classes: int
) -> NDArray[np.float32]:
    """One weight per class, scaled so that the weights of all training pixels have mean 1."""
    return _weights(given, counts, num_classes=num_classes, of="pixel")


def _weights(
    given: Sequence[str], counts: NDArray[np.int64], *, num_classes: int, of: str
) -> NDArray[np.float32]:
    asked = parse_class_weights(given)
    if asked is None:
        asked = [1.0 / count if count else 0.0 for count in counts.tolist()]
    if len(asked) != num_classes:
        raise BadInputError(
            f"--class-weights has {len(asked)} numbers but there are {num_classes} classes; give one number "
            "per class, or --class-weights balanced."
        )
    weights = np.asarray(asked)
    mean = float((weights * counts).sum()) / int(counts.sum())
    if mean == 0:
        raise BadInputError(f"--class-weights gives every training {of} the weight 0; use weights above 0.")
    return (weights / mean).astype(np.float32)
