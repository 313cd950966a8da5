"""Whether labels fit the outputs of a Keras model, where torch would fail later and in its own words."""

from typing import Any

from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.package import import_keras

__all__ = ["check_labels"]


def check_labels(model: Any, labels: Tensor) -> None:
    """Refuses classes that a compiled and built model has no output for, and rows of another width."""
    shape = getattr(model, "output_shape", None)
    losses = model._compile_loss._flat_losses if model._compile_loss is not None else []
    if not isinstance(shape, tuple) or not shape or len(losses) != 1 or not labels.numel():
        return
    outputs, loss = shape[-1], losses[0].loss
    # The classes of losses, their names and their functions all come down to the functions.
    function, known = getattr(loss, "fn", None), import_keras().losses
    if not isinstance(outputs, int):
        return
    if function is known.sparse_categorical_crossentropy:
        _check_classes(model, labels, outputs=outputs, ignored=getattr(loss, "ignore_class", None))
    elif function is known.categorical_crossentropy and labels.shape[-1] != outputs:
        raise BadInputError(
            f"The labels have {labels.shape[-1]} numbers per sample, but the model {model.name} has "
            f"{outputs} outputs; end it with Dense({labels.shape[-1]}), or make the labels with "
            f"keras.utils.to_categorical(labels, {outputs})."
        )


def _check_classes(model: Any, labels: Tensor, *, outputs: int, ignored: int | None) -> None:
    counted = labels if ignored is None else labels[labels != ignored]
    if not counted.numel():
        return
    smallest, largest = int(counted.min()), int(counted.max())
    if smallest < 0:
        raise BadInputError(
            f"The smallest label is {smallest}, but classes start at 0; give labels from 0 on."
        )
    if largest >= outputs:
        raise BadInputError(
            f"The largest label is {largest}, but the model {model.name} has {outputs} outputs, for the "
            f"labels 0 to {outputs - 1}; end it with Dense({largest + 1})."
        )
