"""Small Keras models and data for the tests of `fit`; without Keras these tests are skipped."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

os.environ.setdefault("KERAS_BACKEND", "torch")
keras: Any = pytest.importorskip("keras", reason="Keras is not installed")

SAMPLES = 40
CLASSES = 3
Arrays = tuple[NDArray[np.float32], NDArray[np.float32]]


def digits(samples: int = SAMPLES) -> Arrays:
    """Noise with one-hot labels."""
    draws = np.random.default_rng(0)
    images = draws.random((samples, 8, 8, 1), dtype=np.float32)
    return images, np.eye(CLASSES, dtype=np.float32)[draws.integers(0, CLASSES, samples)]


def classifier(
    optimizer: Callable[[], Any] | str = "sgd",
    *,
    has_norm: bool = False,
    loss: Any = "categorical_crossentropy",
    metrics: Any = ("accuracy",),
    regularizer: Any = None,
    **compiled: Any,
) -> Any:
    """A small convolutional network with the same weights each time, compiled."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    images = keras.Input((8, 8, 1))
    values = layers.Conv2D(4, 3, activation="relu", name="first", kernel_regularizer=regularizer)(images)
    if has_norm:
        values = layers.BatchNormalization(name="norm")(values)
    values = layers.MaxPooling2D(2, name="pool")(values)
    values = layers.Flatten(name="flat")(values)
    model = keras.Model(images, layers.Dense(CLASSES, activation="softmax", name="last")(values))
    chosen = optimizer if isinstance(optimizer, str) else optimizer()
    model.compile(chosen, loss, metrics=list(metrics) if metrics else None, **compiled)
    return model


def in_sequence() -> Any:
    """The same network as a Sequential model, not compiled."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu", name="first"),
            layers.MaxPooling2D(2, name="pool"),
            layers.Flatten(name="flat"),
            layers.Dense(CLASSES, activation="softmax", name="last"),
        ]
    )


def farthest(one: Any, other: Any) -> float:
    """The largest difference between the weights of two models."""
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return max(float(np.abs(mine - its).max()) for mine, its in pairs)


def farthest_state(one: Any, other: Any) -> float:
    """The largest difference between the states of two optimizers."""
    pairs = zip(one.optimizer.variables, other.optimizer.variables, strict=True)
    return max(float(np.abs(mine.numpy() - its.numpy()).max()) for mine, its in pairs)
