"""Keras's activation functions and layers as torch modules."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from drivetrain.models.from_keras.leaf import Form, KerasCall, Leaf, ToLeaf
from drivetrain.models.from_keras.torch_layers import Called

__all__ = ["ACTIVATION_LAYERS", "activation_module"]

_MODULES: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "mish": nn.Mish,
    "hard_sigmoid": nn.Hardsigmoid,
    "hard_silu": nn.Hardswish,
    "hard_swish": nn.Hardswish,
    "leaky_relu": partial(nn.LeakyReLU, 0.2),
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "log_sigmoid": nn.LogSigmoid,
}
_OVER_CHANNELS: dict[str, type[nn.Softmax | nn.LogSoftmax]] = {
    "softmax": nn.Softmax,
    "log_softmax": nn.LogSoftmax,
}


def activation_module(function: Any, *, form: Form = Form.AS_IN_KERAS) -> nn.Module | None:
    """The module of an activation function, for values of this form; None for the identity."""
    name = _name_in_keras(function)
    if function is None or name == "linear":
        return None
    channels = 1 if form is Form.CHANNELS_SECOND else -1
    if name in _OVER_CHANNELS:
        return _OVER_CHANNELS[name](channels)
    if name in _MODULES:
        return _MODULES[name]()
    return Called(function, is_moved=form is Form.CHANNELS_SECOND)


def _name_in_keras(function: Any) -> str:
    """The name of one of Keras's own functions; '' for a user's."""
    module = str(getattr(function, "__module__", ""))
    return str(getattr(function, "__name__", "")) if module.startswith("keras.") else ""


def _activation(call: KerasCall) -> Leaf | None:
    module = activation_module(call.layer.activation)
    if module is None:
        return Leaf(module=nn.Identity(), form=None)
    is_elementwise = not isinstance(module, nn.Softmax | nn.LogSoftmax | Called)
    return Leaf(module=module, form=None if is_elementwise else Form.AS_IN_KERAS)


class _CappedReLU(nn.Module):
    """max(values, 0), at most `largest`."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, values: Tensor) -> Tensor:
        return functional.hardtanh(values, 0.0, self.largest)


def _relu(call: KerasCall) -> Leaf | None:
    layer = call.layer
    slope, largest = float(layer.negative_slope or 0), layer.max_value
    if layer.threshold or (slope and largest is not None):
        return None
    if largest is not None:
        return Leaf(module=nn.ReLU6() if largest == 6 else _CappedReLU(float(largest)), form=None)
    return Leaf(module=nn.LeakyReLU(slope) if slope else nn.ReLU(), form=None)


def _leaky_relu(call: KerasCall) -> Leaf | None:
    return Leaf(module=nn.LeakyReLU(float(call.layer.negative_slope)), form=None)


def _elu(call: KerasCall) -> Leaf | None:
    return Leaf(module=nn.ELU(float(call.layer.alpha)), form=None)


def _softmax(call: KerasCall) -> Leaf | None:
    axis = call.layer.axis
    return Leaf(module=nn.Softmax(axis)) if isinstance(axis, int) else None


ACTIVATION_LAYERS: dict[str, ToLeaf] = {
    "Activation": _activation,
    "ELU": _elu,
    "LeakyReLU": _leaky_relu,
    "ReLU": _relu,
    "Softmax": _softmax,
}
