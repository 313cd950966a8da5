"""The torch module of a Keras model, for samples of a given shape; and its trained weights, given back."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.compiled_loss import check_loss
from drivetrain.models.from_keras.leaf import Form
from drivetrain.models.from_keras.lower import GraphBuilder, Lowering
from drivetrain.models.from_keras.lowered import LoweredKeras
from drivetrain.models.from_keras.outputs import logits_module
from drivetrain.models.from_keras.package import require_torch_backend
from drivetrain.models.from_keras.requirements import require_known_training
from drivetrain.models.from_keras.subclassed import recorded_graph
from drivetrain.models.from_keras.torch_layers import AsInput
from drivetrain.models.from_keras.walk import walk

__all__ = ["give_weights_back", "lower_built_model", "lower_model"]

# The module that makes logits of probabilities.
_LAST = "log_probabilities"


def lower_built_model(model: Any, *, shape: Mapping[str, int]) -> nn.Module:
    """The module of a Keras model that a factory made: for its own input size, or for that in `shape`."""
    require_torch_backend(model)
    of_data = _shape_of_data(shape)
    # Of images that are not square, `shape` knows only one side.
    own = _own_image_shape(model) if len(of_data) == 3 else None
    return lower_model(model, sample_shape=own or of_data).module


def lower_model(model: Any, *, sample_shape: tuple[int, ...]) -> Lowering:
    """Module and links of a Keras model for samples of this shape, channels first; builds it if needed."""
    require_torch_backend(model)
    functional = recorded_graph(model, input_shape=_keras_shape(sample_shape))
    require_known_training(model)
    if len(functional.inputs) != 1 or len(functional.outputs) != 1:
        raise BadInputError(
            f"The Keras model {model.name} has {len(functional.inputs)} inputs and "
            f"{len(functional.outputs)} outputs; only models with one of each can be trained."
        )
    lowering = _lower(functional, sample_shape=sample_shape, name=model.name)
    if model.compiled and model.loss is not None:
        check_loss(model.loss, ends_in_probabilities=_LAST in lowering.module._modules)
    return lowering


def _lower(functional: Any, *, sample_shape: tuple[int, ...], name: str) -> Lowering:
    import keras

    wanted = tuple(functional.inputs[0].shape)[1:]
    is_last = _has_channels_last()
    form = Form.CHANNELS_SECOND if is_last else Form.AS_IN_KERAS
    builder = GraphBuilder(walk(functional), input_form=form, input_rank=len(sample_shape) + 1)
    if _fits(_keras_shape(sample_shape), wanted):
        pass
    elif len(wanted) != len(sample_shape) and _fits_reshaped(_keras_shape(sample_shape), wanted):
        builder.prepend("input_shape", AsInput(wanted, is_last=is_last), rank=len(wanted) + 1)
    else:
        raise _wrong_shape(name, wanted, sample_shape)
    builder.add_model()
    last = logits_module(
        builder.last_module, outputs=functional.outputs[0].shape[-1], epsilon=keras.config.epsilon()
    )
    if last is not None:
        builder.append(_LAST, last)
    return builder.finished(sample_shape)


def _keras_shape(sample_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a sample in Keras, whose channels are last."""
    return (*sample_shape[1:], sample_shape[0]) if _has_channels_last() else sample_shape


def _has_channels_last() -> bool:
    import keras

    return bool(keras.config.image_data_format() == "channels_last")


def _own_image_shape(model: Any) -> tuple[int, ...] | None:
    """Channels, height and width of a model's input, if it is built for images of one size."""
    inputs = model.inputs if model.built and getattr(model, "inputs", None) else []
    shape = tuple(inputs[0].shape)[1:] if inputs else ()
    if len(shape) != 3 or None in shape:
        return None
    return (shape[-1], *shape[:-1]) if _has_channels_last() else shape


def _shape_of_data(shape: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a sample, from what a factory is told about the data."""
    if "num_features" in shape:
        return (shape["num_features"],)
    if "length" in shape:
        return shape["channels"], shape["length"]
    return shape["channels"], shape["image_size"], shape["image_size"]


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    pairs = zip(shape, wanted, strict=True) if len(shape) == len(wanted) else [(0, 1)]
    return all(size is None or given == size for given, size in pairs)


def _fits_reshaped(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    sizes = [size for size in wanted if size is not None]
    return len(sizes) == len(wanted) and prod(sizes) == prod(shape)


def _wrong_shape(name: str, wanted: tuple[int | None, ...], sample_shape: tuple[int, ...]) -> BadInputError:
    given = "x".join(map(str, _keras_shape(sample_shape)))
    asked = "x".join("any" if size is None else str(size) for size in wanted)
    return BadInputError(
        f"The Keras model {name} takes inputs of {asked}, but the data are {given}; give it data of that "
        "size, or build it for these."
    )


@torch.no_grad()
def give_weights_back(model: Any, trained: nn.Module) -> None:
    """Puts the weights of a trained module into the variables of the Keras model that it was made from."""
    assert isinstance(trained, LoweredKeras)
    state = trained.state_dict()
    for link in lower_model(model, sample_shape=trained.sample_shape).links:
        link.variable.assign(link.to_keras(state[link.name].detach()))
