"""The loss that a Keras model was compiled with: what of it is known here, and whether the output fits it."""

from typing import Any

from drivetrain.core.errors import BadInputError

__all__ = ["check_loss", "label_smoothing_of"]

_CROSS_ENTROPIES = {
    "categorical_crossentropy": "CategoricalCrossentropy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "binary_crossentropy": "BinaryCrossentropy",
}
_CLASSES = tuple(_CROSS_ENTROPIES.values())


def check_loss(loss: Any, *, ends_in_probabilities: bool) -> None:
    """Refuses a loss without counterpart, or one that the model's output does not fit."""
    kind = _kind(loss)
    if kind not in _CLASSES:
        raise BadInputError(
            f"The model is compiled with the loss {kind}, which is not available here; compile it with one "
            f"of {', '.join(_CROSS_ENTROPIES)}."
        )
    _check_fit(kind, _setting(loss, "from_logits", default=False), ends_in_probabilities)
    reduction = getattr(loss, "reduction", "sum_over_batch_size")
    if reduction != "sum_over_batch_size":
        raise BadInputError(
            f"The model is compiled with {kind}(reduction={reduction!r}); here the loss is the mean over the "
            "samples, which Keras calls 'sum_over_batch_size'."
        )


def label_smoothing_of(loss: Any) -> float:
    """The label smoothing of a loss; 0 if it has none."""
    return float(_setting(loss, "label_smoothing", default=0.0))


def _kind(loss: Any) -> str:
    """The name of a loss class, which a name, a function or an object of Keras stands for."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return _CROSS_ENTROPIES.get(name, str(name))


def _setting(loss: Any, name: str, *, default: Any) -> Any:
    """A setting of a loss object; those of Keras keep them as arguments of a function."""
    return getattr(loss, "_fn_kwargs", {}).get(name, getattr(loss, name, default))


def _check_fit(kind: str, from_logits: bool, ends_in_probabilities: bool) -> None:
    if from_logits and ends_in_probabilities:
        raise BadInputError(
            f"The model is compiled with {kind}(from_logits=True), but its last layer returns probabilities; "
            "leave from_logits out, or leave out the activation of the last layer."
        )
    if not from_logits and not ends_in_probabilities:
        raise BadInputError(
            f"The model is compiled with {kind}, which takes probabilities, but its last layer has no "
            f"softmax or sigmoid; give it activation='softmax', or compile with {kind}(from_logits=True)."
        )
