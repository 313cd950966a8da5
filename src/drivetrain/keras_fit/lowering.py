"""The torch module of a Keras model for `fit`: its layers up to the model's own output, and its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.leaf import Form, WeightLink
from drivetrain.models.from_keras.lower import GraphBuilder
from drivetrain.models.from_keras.package import require_torch_backend
from drivetrain.models.from_keras.subclassed import recorded_graph
from drivetrain.models.from_keras.torch_layers import AsInput
from drivetrain.models.from_keras.walk import walk

__all__ = ["LoweredModel", "as_keras_output", "as_torch_input", "check_lowered", "lower_for_fit"]

_IMAGE_RANK = 4
# Both run the same layers, which an accelerator may compute in TF32; a wrong layer is far off.
_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredModel:
    """A module, the links between its weights and the variables of the Keras model, and the input's shape."""

    module: nn.Module
    links: tuple[WeightLink, ...]
    channels_last: bool
    input_shape: tuple[int, int, int]
    """Channels, height and width of a sample as the module takes it."""


def lower_for_fit(model: Any, *, sample_shape: tuple[int, ...]) -> LoweredModel:
    """The module of a Keras model, for samples of a shape as Keras has them."""
    require_torch_backend(model)
    functional = recorded_graph(model, input_shape=sample_shape)
    inputs, outputs = len(functional.inputs), len(functional.outputs)
    if inputs != 1 or outputs != 1:
        raise BadInputError(
            f"The Keras model {model.name} has {inputs} inputs and {outputs} outputs; inside the scope a "
            "model must have one of each: train it outside of the scope."
        )
    is_image = len(sample_shape) == _IMAGE_RANK - 1
    is_moved = not is_image or _has_channels_last()
    builder = GraphBuilder(
        walk(functional),
        input_form=Form.CHANNELS_SECOND if is_moved else Form.AS_IN_KERAS,
        input_rank=_IMAGE_RANK,
    )
    if not is_image:
        builder.prepend("input_shape", AsInput(sample_shape, is_last=True), rank=len(sample_shape) + 1)
    builder.add_model()
    shape = _image_shape(sample_shape, is_moved=is_moved)
    lowered = builder.finished(shape)
    return LoweredModel(module=lowered.module, links=lowered.links, channels_last=is_moved, input_shape=shape)


def _image_shape(sample: tuple[int, ...], *, is_moved: bool) -> tuple[int, int, int]:
    """A sample as an image of (channels, height, width); of anything else each number is a channel."""
    if len(sample) != _IMAGE_RANK - 1:
        return prod(sample), 1, 1
    first, second, third = sample
    return (third, first, second) if is_moved else (first, second, third)


def _has_channels_last() -> bool:
    import keras

    return bool(keras.config.image_data_format() == "channels_last")


def as_torch_input(samples: Tensor, *, channels_last: bool) -> Tensor:
    """Samples of Keras as images for the module: a view, in float32."""
    floats = samples.float()
    if floats.dim() != _IMAGE_RANK:
        return floats.reshape(len(floats), -1, 1, 1)
    return floats.permute(0, 3, 1, 2) if channels_last else floats


def as_keras_output(values: Tensor) -> Tensor:
    """What the module returns, as the Keras model returns it: with the channels last."""
    return values if values.dim() <= 2 else torch.movedim(values, 1, -1)


def check_lowered(model: Any, lowered: LoweredModel, samples: Tensor) -> None:
    """Refuses a model whose module does not return its numbers, or that adds losses while it runs."""
    with torch.no_grad(), _in_evaluation(model):
        wanted = model(samples, training=False)
        if len(model.losses) > sum(_is_regularised(weight) for weight in model.trainable_variables):
            raise BadInputError(
                f"The Keras model {model.name} adds losses in its layers (add_loss or an activity "
                "regularizer), which are not computed inside the scope; train it outside of the scope."
            )
        lowered.module.eval()
        inputs = as_torch_input(samples.cpu(), channels_last=lowered.channels_last)
        found = as_keras_output(lowered.module(inputs))
        lowered.module.train()
    wanted = wanted.cpu().to(found.dtype)
    if (found - wanted).abs().max() > _TOLERANCE * wanted.abs().max():
        raise BadInputError(
            f"The Keras model {model.name} computes something else inside the scope than by itself, so it "
            "cannot be trained there; train it outside of the scope."
        )


def _is_regularised(variable: Any) -> bool:
    return getattr(variable, "regularizer", None) is not None


@contextmanager
def _in_evaluation(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
