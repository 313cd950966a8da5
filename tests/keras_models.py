"""Small Keras models for tests, which are skipped where Keras is not installed."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

SIDE, CLASSES = 12, 4


def real_keras() -> Any:
    """Keras on the torch backend; skips the test if it is not installed."""
    return pytest.importorskip("keras")


def little_cnn(keras: Any, *, dropout: float = 0.0, activation: str | None = "softmax") -> Any:
    """Convolutions, batch norm with its own settings, dropout, and a dense layer, seeded."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="first"),
            layers.BatchNormalization(momentum=0.8, epsilon=0.002, name="norm"),
            layers.MaxPooling2D(2),
            layers.Conv2D(6, 3, name="second"),
            layers.Flatten(),
            layers.Dropout(dropout),
            layers.Dense(CLASSES, activation=activation, name="last"),
        ],
        name="little",
    )


def images_of(shape: tuple[int, ...], *, samples: int = 4) -> NDArray[np.float32]:
    """Images as Keras users have them: channels last, float32."""
    return np.random.default_rng(0).random((samples, *shape), dtype=np.float32)


def as_torch(images: NDArray[np.float32]) -> Tensor:
    """The same images, channels second."""
    return torch.from_numpy(images).permute(0, 3, 1, 2)


def moved_statistics(model: Any) -> None:
    """Gives batch norms other statistics than those of a new model."""
    random = np.random.default_rng(1)
    for variable in model.variables:
        if "moving" in variable.name:
            variable.assign(random.random(variable.shape, dtype=np.float32) + 0.5)
