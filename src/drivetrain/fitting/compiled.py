"""What `compile` was given, as options of a recipe."""

from collections.abc import Mapping
from typing import Any

from drivetrain.fitting.optimiser_options import optimiser_options
from drivetrain.models.from_keras.compiled_loss import label_smoothing_of

__all__ = ["compiled_options", "sets_optimisation"]

_OPTIMISATION = (
    "optimizer",
    "optimizer_params",
    "learning_rate",
    "lr_schedule",
    "lr_schedule_params",
    "weight_decay",
    "clip_norm",
)


def sets_optimisation(options: Mapping[str, Any]) -> bool:
    """Whether options say how to optimise, so that what `compile` was given does not count."""
    return any(option in options for option in _OPTIMISATION)


def compiled_options(model: Any) -> dict[str, Any]:
    """Options that train as a compiled Keras model asks; none for a model that is not compiled."""
    if not model.compiled:
        return {}
    smoothing = 0.0 if model.loss is None else label_smoothing_of(model.loss)
    return {**optimiser_options(model.optimizer), **({"label_smoothing": smoothing} if smoothing else {})}
