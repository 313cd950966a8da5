"""Networks of keras.applications with our top, and their weights in our networks."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.keras_models import real_keras

CLASSES = 10
# What Keras stores for the layer that normalises the pixels in EfficientNet: 3 means, 3 variances, a count.
NORMALISATION_VALUES = 7
# The networks whose scaling of pixels can be left out.
_RESCALING = ("MobileNetV3Small", "MobileNetV3Large")


def keras_network(name: str, *, side: int) -> Any:
    """The network, with global average pooling and a dense layer in place of its top, and random weights."""
    keras = real_keras()
    plain = {"include_preprocessing": False} if name in _RESCALING else {}
    keras.utils.set_random_seed(1)
    body = getattr(keras.applications, name)(
        include_top=False, weights=None, input_shape=(side, side, 3), **plain
    )
    pooled = keras.layers.GlobalAveragePooling2D()(body.output)
    network = keras.Model(body.input, keras.layers.Dense(CLASSES, name="predictions")(pooled))
    random = np.random.default_rng(2)
    for variable in network.variables:
        if any(word in variable.path for word in ("gamma", "beta", "bias", "moving")):
            variable.assign(random.random(variable.shape, dtype=np.float32) + 0.5)
    return network


@torch.no_grad()
def take_weights(model: nn.Module, network: Any) -> None:
    """Copies the weights of all layers of a Keras network to the layers of the same names."""
    ours = {name: layer for name, layer in model.named_modules() if list(layer.parameters(recurse=False))}
    theirs = {layer.name: layer for layer in network.layers if layer.weights}
    theirs.pop("normalization", None)
    assert ours.keys() == theirs.keys()
    for name, layer in theirs.items():
        _copy(ours[name], [torch.from_numpy(np.array(value)) for value in layer.get_weights()])


def _copy(layer: nn.Module, values: list[Tensor]) -> None:
    if isinstance(layer, nn.BatchNorm2d):
        assert layer.running_mean is not None
        assert layer.running_var is not None
        targets = [layer.weight, layer.bias, layer.running_mean, layer.running_var]
    else:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        targets = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
        values[0] = _kernel(layer, values[0])
    for target, value in zip(targets, values, strict=True):
        assert target.shape == value.shape
        target.copy_(value)


def _kernel(layer: nn.Conv2d | nn.Linear, values: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return values.T
    return values.permute(2, 3, 0, 1) if layer.groups > 1 else values.permute(3, 2, 0, 1)
