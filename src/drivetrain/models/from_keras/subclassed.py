"""The graph of any Keras model: recorded by Keras, recorded here, or a single layer."""

import inspect
from typing import Any

import numpy as np

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.models.from_keras.walk import functional_of, walk

__all__ = ["recorded_graph"]

_SAMPLES = 2
# Both run the same layers, in float32.
_TOLERANCE = 1e-5


def recorded_graph(model: Any, *, input_shape: tuple[int, ...]) -> Any:
    """A Functional model of the same layers that computes the same; builds `model` if needed."""
    _build(model, input_shape)
    known = functional_of(model)
    return _recorded(model, input_shape) or _as_one_layer(model, input_shape) if known is None else known


def _build(model: Any, input_shape: tuple[int, ...]) -> None:
    import keras

    if model.built:
        return
    try:
        if isinstance(model, keras.Sequential):
            model.build((None, *input_shape))
        else:
            model(keras.Input(input_shape))
    except Exception as error:
        size = "x".join(map(str, input_shape))
        raise BadInputError(
            f"The Keras model {model.name} cannot take images of {size}: {describe_failure(error)}"
        ) from error


def _recorded(model: Any, input_shape: tuple[int, ...]) -> Any | None:
    """The graph of what `call` does, if that is the same in both modes and for numbers."""
    try:
        training, evaluation = (_call_on_symbols(model, input_shape, training=mode) for mode in (True, False))
        is_same = _layers_of(training) == _layers_of(evaluation) and _agrees(training, model, input_shape)
    except Exception:
        # Its code needs numbers: torch operations, or branches on values.
        return None
    return training if is_same else None


def _call_on_symbols(model: Any, input_shape: tuple[int, ...], *, training: bool) -> Any:
    import keras

    images = keras.Input(input_shape)
    takes_mode = "training" in inspect.signature(model.call).parameters
    return keras.Model(images, model.call(images, training=training) if takes_mode else model.call(images))


def _layers_of(functional: Any) -> list[tuple[object, ...]]:
    return [
        (visit.layer if hasattr(visit.layer, "variables") else type(visit.layer), visit.inputs)
        for visit in walk(functional).visits
    ]


def _agrees(functional: Any, model: Any, input_shape: tuple[int, ...]) -> bool:
    """Whether a recorded graph returns the model's own numbers, in evaluation."""
    import keras

    images = np.random.default_rng(0).random((_SAMPLES, *input_shape), dtype=np.float32)
    ours, its = (keras.ops.convert_to_numpy(one(images, training=False)) for one in (functional, model))
    return bool(np.allclose(ours, its, rtol=_TOLERANCE, atol=_TOLERANCE))


def _as_one_layer(model: Any, input_shape: tuple[int, ...]) -> Any:
    import keras

    images = keras.Input(input_shape)
    return keras.Model(images, model(images))
