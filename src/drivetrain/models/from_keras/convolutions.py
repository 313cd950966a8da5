"""Keras's convolutions and dense layers as torch modules."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from drivetrain.models.from_keras.activations import activation_module
from drivetrain.models.from_keras.leaf import Form, KerasCall, Leaf, ToLeaf, WeightLink, in_sequence
from drivetrain.models.from_keras.torch_layers import Crop, SamePadding

__all__ = ["CONVOLUTIONS", "form_of"]

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_PADDINGS = ("valid", "same")


def form_of(layer: Any) -> Form:
    """The form in which torch's layer reads what a layer of Keras with a `data_format` reads."""
    # Channels that are second in Keras too need no move.
    return Form.CHANNELS_SECOND if layer.data_format == "channels_last" else Form.AS_IN_KERAS


def _kernel_axes(rank: int) -> tuple[int, ...]:
    """Keras has (sizes, inputs, outputs), torch (outputs, inputs, sizes)."""
    return (rank + 1, rank, *range(rank))


def _bias(layer: Any, name: str = "bias") -> list[WeightLink]:
    return [WeightLink(name=name, variable=layer.bias)] if layer.use_bias else []


def _padding(
    call: KerasCall, *, kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[nn.Module | None, Any]:
    """The module that pads the input, if one is needed, and the padding of the convolution itself."""
    layer = call.layer
    if layer.padding == "valid":
        return None, 0
    padding = SamePadding(kernel, strides=layer.strides, dilation=dilation, mode="constant")
    sizes = call.shape[1:-1] if form_of(layer) is Form.CHANNELS_SECOND else call.shape[2:]
    is_known = all(stride == 1 for stride in layer.strides) or (None not in sizes and not call.is_repeated)
    pads = padding.pads([size or 0 for size in sizes]) if is_known else ()
    befores, afters = pads[::2], pads[1::2]
    if not is_known or befores != afters:
        return padding, 0
    return None, tuple(reversed(befores))


def _convolution(call: KerasCall) -> Leaf | None:
    layer = call.layer
    if layer.padding not in _PADDINGS:
        return None
    rank = layer.rank
    padding, own = _padding(call, kernel=layer.kernel_size, dilation=layer.dilation_rate)
    inputs, outputs = layer.kernel.shape[-2:]
    with torch.device("meta"):
        module = _CONV[rank](
            inputs * layer.groups,
            outputs,
            layer.kernel_size,
            stride=layer.strides,
            padding=own,
            dilation=layer.dilation_rate,
            groups=layer.groups,
            bias=layer.use_bias,
        )
    links = [WeightLink(name="weight", variable=layer.kernel, axes=_kernel_axes(rank)), *_bias(layer)]
    return _finished(call, {"padding": (padding, ()), "convolution": (module, links)})


def _depthwise(call: KerasCall) -> Leaf | None:
    layer = call.layer
    if layer.padding not in _PADDINGS:
        return None
    padding, own = _padding(call, kernel=layer.kernel_size, dilation=layer.dilation_rate)
    module, link = _each_channel(layer, layer.kernel, padding=own, has_bias=layer.use_bias)
    return _finished(call, {"padding": (padding, ()), "convolution": (module, [link, *_bias(layer)])})


def _separable(call: KerasCall) -> Leaf | None:
    layer = call.layer
    if layer.padding not in _PADDINGS:
        return None
    padding, own = _padding(call, kernel=layer.kernel_size, dilation=layer.dilation_rate)
    module, link = _each_channel(layer, layer.depthwise_kernel, padding=own, has_bias=False)
    inputs, outputs = layer.pointwise_kernel.shape[-2:]
    with torch.device("meta"):
        pointwise = _CONV[layer.rank](inputs, outputs, 1, bias=layer.use_bias)
    mixing = WeightLink(name="weight", variable=layer.pointwise_kernel, axes=_kernel_axes(layer.rank))
    parts = {
        "padding": (padding, ()),
        "depthwise": (module, [link]),
        "pointwise": (pointwise, [mixing, *_bias(layer)]),
    }
    return _finished(call, parts)


def _each_channel(layer: Any, kernel: Any, *, padding: Any, has_bias: bool) -> tuple[nn.Module, WeightLink]:
    """A convolution of every channel by itself, and the link of its kernel."""
    *sizes, channels, multiplier = kernel.shape
    with torch.device("meta"):
        kind: Any = _CONV[len(sizes)]
        module: nn.Module = kind(
            channels,
            channels * multiplier,
            tuple(sizes),
            stride=layer.strides,
            padding=padding,
            dilation=layer.dilation_rate,
            groups=channels,
            bias=has_bias,
        )
    viewed = (*sizes, 1, channels * multiplier)
    link = WeightLink(name="weight", variable=kernel, axes=_kernel_axes(len(sizes)), viewed=viewed)
    return module, link


def _transposed(call: KerasCall) -> Leaf | None:
    layer = call.layer
    if layer.padding not in _PADDINGS:
        return None
    outputs, inputs = layer.kernel.shape[-2:]
    crops = _crops(call)
    # Zeros that are added after the bias differ from those that Keras adds before it.
    if layer.use_bias and any(side < 0 for crop in crops for side in crop):
        return None
    with torch.device("meta"):
        module = _TRANSPOSED[layer.rank](
            inputs,
            outputs,
            layer.kernel_size,
            stride=layer.strides,
            dilation=layer.dilation_rate,
            bias=layer.use_bias,
        )
    links = [WeightLink(name="weight", variable=layer.kernel, axes=_kernel_axes(layer.rank)), *_bias(layer)]
    crop = Crop(crops) if any(map(any, crops)) else None
    return _finished(call, {"convolution": (module, links), "crop": (crop, ())})


def _crops(call: KerasCall) -> list[tuple[int, int]]:
    from keras.src.backend.common.backend_utils import compute_conv_transpose_output_crops_for_torch

    layer = call.layer
    return list(
        compute_conv_transpose_output_crops_for_torch(
            input_shape=call.shape,
            kernel_shape=tuple(layer.kernel.shape),
            strides=layer.strides,
            padding=layer.padding,
            output_padding=layer.output_padding,
            dilation_rate=layer.dilation_rate,
        )
    )


def _dense(call: KerasCall) -> Leaf | None:
    layer = call.layer
    inputs, outputs = layer.kernel.shape
    with torch.device("meta"):
        module = nn.Linear(inputs, outputs, bias=layer.use_bias)
    links = [WeightLink(name="weight", variable=layer.kernel, axes=(1, 0)), *_bias(layer)]
    return _finished(call, {"linear": (module, links)}, form=Form.AS_IN_KERAS)


def _finished(call: KerasCall, parts: Any, *, form: Form | None = None) -> Leaf:
    form = form_of(call.layer) if form is None else form
    activation = activation_module(call.layer.activation, form=form)
    module, links = in_sequence({**parts, "activation": (activation, ())})
    return Leaf(module=module, form=form, links=links)


CONVOLUTIONS: dict[str, ToLeaf] = {
    "Conv1D": _convolution,
    "Conv1DTranspose": _transposed,
    "Conv2D": _convolution,
    "Conv2DTranspose": _transposed,
    "Conv3D": _convolution,
    "Conv3DTranspose": _transposed,
    "Dense": _dense,
    "DepthwiseConv1D": _depthwise,
    "DepthwiseConv2D": _depthwise,
    "SeparableConv1D": _separable,
    "SeparableConv2D": _separable,
}
