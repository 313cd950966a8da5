"""What a Keras model may not ask of its training here, each refused with a sentence."""

from collections.abc import Iterator
from typing import Any

from drivetrain.core.errors import BadInputError

__all__ = ["require_known_training"]

_OWN_STEPS = ("train_step", "compute_loss", "stateless_compute_loss")


def require_known_training(model: Any) -> None:
    """Refuses a model whose code or settings change what a training computes, beyond its layers."""
    import keras

    for name in _OWN_STEPS:
        if getattr(type(model), name, None) is not getattr(keras.Model, name, None):
            raise BadInputError(
                f"The Keras model {model.name} has a {name} of its own, which is not run here; train it with "
                "Keras, or move what it computes into a layer."
            )
    setting = next(_unknown_settings(model), None)
    if setting is not None:
        raise BadInputError(
            f"The Keras model {model.name} has {setting}, which is not applied here; build it without, for "
            "example with --l2-regularization or --weight-decay in its place."
        )


def _unknown_settings(model: Any) -> Iterator[str]:
    """Regularisers and constraints, in words."""
    for variable in model.trainable_variables:
        for kind in ("regularizer", "constraint"):
            value = getattr(variable, kind, None)
            if value is not None:
                yield f"a {kind} ({type(value).__name__}) on {variable.path}"
    for layer in model._flatten_layers():
        regularizer = getattr(layer, "activity_regularizer", None)
        if regularizer is not None:
            yield f"an activity regularizer ({type(regularizer).__name__}) on the layer {layer.name}"
