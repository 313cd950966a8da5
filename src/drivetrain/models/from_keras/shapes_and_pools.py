"""Keras's pooling, padding, reshaping and merging layers as torch modules."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from drivetrain.models.from_keras.convolutions import form_of
from drivetrain.models.from_keras.leaf import Form, KerasCall, Leaf, ToLeaf, in_sequence
from drivetrain.models.from_keras.torch_layers import (
    Combine,
    Concatenate,
    Crop,
    GlobalPool,
    PermuteAxes,
    SamePadding,
    Unflatten,
    add,
    maximum,
    mean,
    minimum,
    multiply,
    subtract,
)

__all__ = ["SHAPES_AND_POOLS"]

_MAX_POOL = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_AVERAGE_POOL = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}


def _max_pool(call: KerasCall) -> Leaf | None:
    layer = call.layer
    kind = _MAX_POOL[len(layer.pool_size)]
    return _pool(call, lambda padding: kind(layer.pool_size, layer.strides, padding))


def _average_pool(call: KerasCall) -> Leaf | None:
    layer = call.layer
    kind: Any = _AVERAGE_POOL[len(layer.pool_size)]
    return _pool(call, lambda padding: kind(layer.pool_size, layer.strides, padding, count_include_pad=False))


def _pool(call: KerasCall, make: Callable[[Any], nn.Module]) -> Leaf | None:
    layer = call.layer
    form = form_of(layer)
    if layer.padding == "valid":
        return Leaf(module=make(0), form=form)
    sizes = call.shape[1:-1] if form is Form.CHANNELS_SECOND else call.shape[2:]
    if None in sizes or call.is_repeated:
        return None
    ones = [1] * len(sizes)
    # Where both sides need different widths, Keras repeats the values at the border.
    padding = SamePadding(layer.pool_size, strides=layer.strides, dilation=ones, mode="replicate")
    pads = padding.pads([size or 0 for size in sizes])
    if pads[::2] == pads[1::2]:
        return Leaf(module=make(tuple(reversed(pads[::2]))), form=form)
    module, _ = in_sequence({"padding": (padding, ()), "pool": (make(0), ())})
    return Leaf(module=module, form=form)


def _global_pool(call: KerasCall) -> Leaf | None:
    layer = call.layer
    largest = "Max" in type(layer).__name__
    module = GlobalPool(takes_largest=largest, keeps_dims=layer.keepdims)
    gives = None if layer.keepdims else Form.AS_IN_KERAS
    return Leaf(module=module, form=form_of(layer), gives=gives)


def _flatten(call: KerasCall) -> Leaf | None:
    if len(call.shape) < 2:
        return None
    return Leaf(module=nn.Flatten()) if form_of(call.layer) is Form.CHANNELS_SECOND else None


def _reshape(call: KerasCall) -> Leaf | None:
    return Leaf(module=Unflatten([-1 if size is None else size for size in call.layer.target_shape]))


def _permute(call: KerasCall) -> Leaf | None:
    return Leaf(module=PermuteAxes((0, *call.layer.dims)))


def _identity(_call: KerasCall) -> Leaf | None:
    return Leaf(module=nn.Identity(), form=None)


def _zero_padding(call: KerasCall) -> Leaf | None:
    layer = call.layer
    sides = layer.padding if isinstance(layer.padding[0], Sequence) else (layer.padding,)
    return Leaf(module=Crop([(-before, -after) for before, after in sides]), form=_spatial_form(layer))


def _cropping(call: KerasCall) -> Leaf | None:
    layer = call.layer
    sides = layer.cropping if isinstance(layer.cropping[0], Sequence) else (layer.cropping,)
    return Leaf(module=Crop(sides), form=_spatial_form(layer))


def _spatial_form(layer: Any) -> Form:
    # Of one dimension, Keras's layers have no data_format: the channels are last.
    return form_of(layer) if hasattr(layer, "data_format") else Form.CHANNELS_SECOND


def _up_sampling(call: KerasCall) -> Leaf | None:
    layer = call.layer
    mode = layer.interpolation
    if mode not in ("nearest", "bilinear"):
        return None
    scale = tuple(float(factor) for factor in layer.size)
    return Leaf(module=nn.Upsample(scale_factor=scale, mode=mode), form=form_of(layer))


def _combined(combine: Callable[[Sequence[Tensor]], Tensor]) -> ToLeaf:
    def to_leaf(call: KerasCall) -> Leaf | None:
        # Of different ranks, Keras moves axes before it combines.
        has_one_rank = len({len(shape) for shape in call.shapes}) == 1
        return Leaf(module=Combine(combine), form=None) if has_one_rank else None

    return to_leaf


def _concatenate(call: KerasCall) -> Leaf | None:
    rank = len(call.shape)
    axis = call.layer.axis % rank
    if axis == rank - 1 and rank > 2:
        return Leaf(module=Concatenate(1), form=Form.CHANNELS_SECOND)
    return Leaf(module=Concatenate(axis))


SHAPES_AND_POOLS: dict[str, ToLeaf] = {
    "Add": _combined(add),
    "Average": _combined(mean),
    "AveragePooling1D": _average_pool,
    "AveragePooling2D": _average_pool,
    "AveragePooling3D": _average_pool,
    "Concatenate": _concatenate,
    "Cropping1D": _cropping,
    "Cropping2D": _cropping,
    "Cropping3D": _cropping,
    "Flatten": _flatten,
    "GlobalAveragePooling1D": _global_pool,
    "GlobalAveragePooling2D": _global_pool,
    "GlobalAveragePooling3D": _global_pool,
    "GlobalMaxPooling1D": _global_pool,
    "GlobalMaxPooling2D": _global_pool,
    "GlobalMaxPooling3D": _global_pool,
    "Identity": _identity,
    "MaxPooling1D": _max_pool,
    "MaxPooling2D": _max_pool,
    "MaxPooling3D": _max_pool,
    "Maximum": _combined(maximum),
    "Minimum": _combined(minimum),
    "Multiply": _combined(multiply),
    "Permute": _permute,
    "Reshape": _reshape,
    "Subtract": _combined(subtract),
    "UpSampling2D": _up_sampling,
    "ZeroPadding1D": _zero_padding,
    "ZeroPadding2D": _zero_padding,
    "ZeroPadding3D": _zero_padding,
}
