"""Keras's layers that draw random numbers, as torch modules whose draws Drivetrain places."""

from torch import nn

from drivetrain.models.from_keras.leaf import Form, KerasCall, Leaf, ToLeaf
from drivetrain.models.from_keras.torch_layers import DropPath, GaussianDropout, GaussianNoise

__all__ = ["RANDOM_LAYERS"]

_SPATIAL = {3: nn.Dropout1d, 4: nn.Dropout2d, 5: nn.Dropout3d}


def _dropout(call: KerasCall) -> Leaf | None:
    layer, shape = call.layer, call.layer.noise_shape
    rate = float(layer.rate)
    if shape is None or all(size is None for size in shape):
        return Leaf(module=nn.Dropout(rate), form=None)
    if shape[0] is None and all(size == 1 for size in shape[1:]):
        return Leaf(module=DropPath(rate), form=None)
    return None


def _spatial_dropout(call: KerasCall) -> Leaf | None:
    is_last = getattr(call.layer, "data_format", "channels_last") == "channels_last"
    form = Form.CHANNELS_SECOND if is_last else Form.AS_IN_KERAS
    return Leaf(module=_SPATIAL[len(call.shape)](float(call.layer.rate)), form=form)


def _alpha_dropout(call: KerasCall) -> Leaf | None:
    if call.layer.noise_shape is not None:
        return None
    return Leaf(module=nn.AlphaDropout(float(call.layer.rate)), form=None)


def _gaussian_dropout(call: KerasCall) -> Leaf | None:
    return Leaf(module=GaussianDropout(float(call.layer.rate)), form=None)


def _gaussian_noise(call: KerasCall) -> Leaf | None:
    return Leaf(module=GaussianNoise(float(call.layer.stddev)), form=None)


def _stochastic_depth(call: KerasCall) -> Leaf | None:
    # A layer of keras.applications' ConvNeXt.
    return Leaf(module=DropPath(float(call.layer.drop_path_rate)), form=None)


RANDOM_LAYERS: dict[str, ToLeaf] = {
    "AlphaDropout": _alpha_dropout,
    "Dropout": _dropout,
    "GaussianDropout": _gaussian_dropout,
    "GaussianNoise": _gaussian_noise,
    "SpatialDropout1D": _spatial_dropout,
    "SpatialDropout2D": _spatial_dropout,
    "SpatialDropout3D": _spatial_dropout,
    "StochasticDepth": _stochastic_depth,
}
