"""Keras's normalisation layers as torch modules."""

from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.models.freeze import FrozenBatchNorm
from drivetrain.models.from_keras.leaf import Form, KerasCall, Leaf, ToLeaf, WeightLink, take_weights
from drivetrain.models.from_keras.torch_layers import RescaleBy, Scale

__all__ = ["NORMALISATIONS"]

_BATCH_NORM: dict[int, type[nn.Module]] = {
    2: nn.BatchNorm1d,
    3: nn.BatchNorm1d,
    4: nn.BatchNorm2d,
    5: nn.BatchNorm3d,
}


def _form(axis: Any, rank: int) -> Form | None:
    """The form that puts the channels, on this axis of Keras, second; None if none does."""
    axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    if not isinstance(axis, int):
        return None
    axis %= rank
    if axis == 1:
        return Form.AS_IN_KERAS
    return Form.CHANNELS_SECOND if axis == rank - 1 else None


def _scale_and_centre(module: Any, layer: Any, *, size: int) -> list[WeightLink]:
    """The links of gamma and beta; one that the layer does not have becomes constant."""
    gamma, beta = getattr(layer, "gamma", None), getattr(layer, "beta", None)
    links = []
    for name, variable, constant in (("weight", gamma, torch.ones), ("bias", beta, torch.zeros)):
        if variable is not None:
            links.append(WeightLink(name=name, variable=variable))
        elif module._parameters.get(name) is not None:
            setattr(module, name, nn.Parameter(constant(size), requires_grad=False))
    return links


def _batch_norm(call: KerasCall) -> Leaf | None:
    layer, rank = call.layer, len(call.shape)
    form = _form(layer.axis, rank)
    if form is None or rank not in _BATCH_NORM or getattr(layer, "renorm", False):
        return None
    size = layer.moving_mean.shape[0]
    # torch's momentum is the share of the new value, Keras's that of the old one.
    has_both = bool(layer.scale or layer.center)
    module: Any = _BATCH_NORM[rank](size, eps=layer.epsilon, momentum=1 - layer.momentum, affine=has_both)
    links = _scale_and_centre(module, layer, size=size)
    links += [
        WeightLink(name="running_mean", variable=layer.moving_mean),
        WeightLink(name="running_var", variable=layer.moving_variance),
    ]
    if layer.trainable:
        return Leaf(module=module, form=form, links=tuple(links))
    # Keras uses the moving statistics of a frozen layer, also in training.
    take_weights(module, links)
    module.requires_grad_(False)
    return Leaf(module=FrozenBatchNorm(module), form=form)


def _layer_norm(call: KerasCall) -> Leaf | None:
    layer, rank = call.layer, len(call.shape)
    axis = layer.axis[0] if isinstance(layer.axis, list | tuple) and len(layer.axis) == 1 else layer.axis
    size = call.shape[-1]
    if not isinstance(axis, int) or axis % rank != rank - 1 or size is None:
        return None
    if getattr(layer, "rms_scaling", False):
        return None
    module = nn.LayerNorm(size, eps=layer.epsilon, elementwise_affine=bool(layer.scale or layer.center))
    return Leaf(module=module, links=tuple(_scale_and_centre(module, layer, size=size)))


def _group_norm(call: KerasCall) -> Leaf | None:
    layer = call.layer
    form = _form(layer.axis, len(call.shape))
    size = None if form is None else call.shape[1 if form is Form.AS_IN_KERAS else -1]
    if form is None or size is None:
        return None
    groups = size if layer.groups == -1 else layer.groups
    module = nn.GroupNorm(groups, size, eps=layer.epsilon, affine=bool(layer.scale or layer.center))
    return Leaf(module=module, form=form, links=tuple(_scale_and_centre(module, layer, size=size)))


def _normalization(call: KerasCall) -> Leaf | None:
    layer = call.layer
    if layer.invert or layer.mean is None:
        return None
    mean, variance = (_constant(value) for value in (layer.mean, layer.variance))
    deviation = variance.sqrt().clamp(min=_keras_epsilon())
    return Leaf(module=RescaleBy(1 / deviation, -mean / deviation))


def _keras_epsilon() -> float:
    import keras

    return float(keras.config.epsilon())


def _rescaling(call: KerasCall) -> Leaf | None:
    scale, offset = (_constant(value) for value in (call.layer.scale, call.layer.offset))
    is_single = scale.dim() == offset.dim() == 0
    return Leaf(module=RescaleBy(scale, offset), form=None if is_single else Form.AS_IN_KERAS)


def _layer_scale(call: KerasCall) -> Leaf | None:
    # A layer of keras.applications' ConvNeXt.
    gamma = call.layer.gamma
    return Leaf(module=Scale(gamma.shape[0]), links=(WeightLink(name="weight", variable=gamma),))


def _constant(value: Any) -> Tensor:
    made = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value)
    return made.to("cpu", torch.float32, copy=True)


NORMALISATIONS: dict[str, ToLeaf] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "LayerScale": _layer_scale,
    "Normalization": _normalization,
    "Rescaling": _rescaling,
}
