"""Single Keras layers against their leaves: outputs and weight gradients, with other sizes and settings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from drivetrain.models.from_keras.kept_layer import KeptLayer
from drivetrain.models.from_keras.lower import Lowering
from drivetrain.models.from_keras.model import lower_model
from tests.keras_models import as_torch, images_of, moved_statistics, real_keras

MakeLayer = Callable[[Any], Any]
# Rounding differs by the order of sums alone.
TOLERANCE = 2e-5

NATIVE: dict[str, MakeLayer] = {
    "conv valid": lambda layers: layers.Conv2D(5, 3, strides=2),
    "conv same, stride 2": lambda layers: layers.Conv2D(5, 3, strides=2, padding="same"),
    "conv same, even kernel": lambda layers: layers.Conv2D(5, (4, 2), padding="same", activation="tanh"),
    "conv dilated, grouped": lambda layers: layers.Conv2D(4, 3, padding="same", dilation_rate=2, groups=2),
    "depthwise": lambda layers: layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same", strides=2),
    "separable": lambda layers: layers.SeparableConv2D(6, 3, use_bias=False, activation="relu"),
    "transposed same": lambda layers: layers.Conv2DTranspose(5, 3, strides=2, padding="same"),
    "transposed valid": lambda layers: layers.Conv2DTranspose(5, 2, strides=2),
    "softmax over channels": lambda layers: layers.Conv2D(3, 1, activation="softmax"),
    "dense on the last axis": lambda layers: layers.Dense(3, activation="gelu"),
    "batch norm": lambda layers: layers.BatchNormalization(momentum=0.7, epsilon=0.01),
    "batch norm without scale": lambda layers: layers.BatchNormalization(scale=False),
    "layer norm": lambda layers: layers.LayerNormalization(epsilon=0.01),
    "layer norm without centre": lambda layers: layers.LayerNormalization(center=False),
    "group norm": lambda layers: layers.GroupNormalization(2),
    "max pool same": lambda layers: layers.MaxPooling2D(3, 2, padding="same"),
    "max pool": lambda layers: layers.MaxPooling2D(2),
    "average pool same": lambda layers: layers.AveragePooling2D(3, 2, padding="same"),
    "average pool same, one side": lambda layers: layers.AveragePooling2D(2, 2, padding="same"),
    "global average": lambda layers: layers.GlobalAveragePooling2D(),
    "global max, kept dims": lambda layers: layers.GlobalMaxPooling2D(keepdims=True),
    "zero padding": lambda layers: layers.ZeroPadding2D(((1, 2), (0, 3))),
    "cropping": lambda layers: layers.Cropping2D(((1, 0), (2, 1))),
    "up-sampling": lambda layers: layers.UpSampling2D((2, 3)),
    "bilinear up-sampling": lambda layers: layers.UpSampling2D(2, interpolation="bilinear"),
    "flatten": lambda layers: layers.Flatten(),
    "reshape": lambda layers: layers.Reshape((-1, 2)),
    "permute": lambda layers: layers.Permute((3, 1, 2)),
    "rescaling": lambda layers: layers.Rescaling(2.0, offset=-1),
    "rescaling by channel": lambda layers: layers.Rescaling([1.0, 2.0, 3.0, 4.0]),
    "relu with a limit": lambda layers: layers.ReLU(0.5),
    "leaky relu": lambda layers: layers.LeakyReLU(0.1),
    "elu": lambda layers: layers.ELU(0.5),
    "hard swish": lambda layers: layers.Activation("hard_swish"),
    "dropout in evaluation": lambda layers: layers.Dropout(0.5),
}
KEPT: dict[str, MakeLayer] = {
    "prelu": lambda layers: layers.PReLU(),
    "unit norm": lambda layers: layers.UnitNormalization(),
    "resizing": lambda layers: layers.Resizing(5, 5),
}
SHAPE = (9, 10, 4)


def lowered(make: MakeLayer) -> tuple[Any, Lowering]:
    keras = real_keras()
    keras.utils.set_random_seed(0)
    images = keras.Input(SHAPE)
    model = keras.Model(images, make(keras.layers)(images))
    moved_statistics(model)
    return model, lower_model(model, sample_shape=(SHAPE[2], *SHAPE[:2]))


def as_in_keras(lowering: Lowering, images: np.ndarray[Any, Any], *, rank: int) -> torch.Tensor:
    # torch 2.13 crashes in the backward pass of a group norm whose input needs no gradient.
    made: torch.Tensor = lowering.module(as_torch(images).requires_grad_())
    if "log_probabilities" in lowering.module._modules:
        made = made.exp()
    return made.movedim(1, -1) if rank > 2 else made


@pytest.mark.parametrize("name", [*NATIVE, *KEPT])
def test_a_layer_computes_the_same(name: str) -> None:
    model, lowering = lowered({**NATIVE, **KEPT}[name])
    images = images_of(SHAPE)
    expected = model(images, training=False)
    lowering.module.eval()
    made = as_in_keras(lowering, images, rank=expected.dim())
    torch.testing.assert_close(made, expected, rtol=TOLERANCE, atol=TOLERANCE)
    kept = [part for part in lowering.module.modules() if isinstance(part, KeptLayer)]
    assert bool(kept) == (name in KEPT)


@pytest.mark.parametrize("name", [*NATIVE, "prelu"])
def test_weights_have_the_same_gradients_in_training(name: str) -> None:
    model, lowering = lowered({**NATIVE, **KEPT}[name])
    if not model.trainable_variables or name == "dropout in evaluation":
        return
    images = images_of(SHAPE)
    expected = model(images, training=True)
    weights = torch.from_numpy(images_of(tuple(expected.shape[1:]))) - 0.5
    lowering.module.train()
    made = as_in_keras(lowering, images, rank=expected.dim())
    torch.autograd.backward([(made * weights).sum(), (expected * weights).sum()])
    named = dict(lowering.module.named_parameters())
    trained = [link for link in lowering.links if link.variable.trainable]
    assert trained
    for link in trained:
        gradient = named[link.name].grad
        assert gradient is not None
        torch.testing.assert_close(
            link.to_keras(gradient), link.variable.value.grad, rtol=1e-3, atol=1e-4, msg=link.name
        )


def test_a_weight_that_is_not_taken_over_is_found() -> None:
    """The negative control: a scaled kernel must change what comes out."""
    model, lowering = lowered(NATIVE["conv same, stride 2"])
    with torch.no_grad():
        next(lowering.module.parameters()).mul_(1.001)
    images = images_of(SHAPE)
    expected = model(images, training=False)
    made = as_in_keras(lowering, images, rank=expected.dim())
    assert not torch.allclose(made, expected, rtol=TOLERANCE, atol=TOLERANCE)
