"""One network of each family computes what the network of keras.applications does with the same weights.

In training, batch norms use the moments of the batch, so that no layer is saturated by made-up statistics.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.models.create import create_model
from tests.keras_models import images_of
from tests.models.zoo.known_counts import LIGHT_TOTALS
from tests.models.zoo.photographs.keras_networks import CLASSES, keras_network, take_weights

# Strided layers see odd and even sizes, which Keras pads differently.
SIDE = 76
# Batch norms of few values magnify the rounding of each layer.
TOLERANCE = 1e-4
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "mobilenet": ("MobileNet", {"dropout": 0.0}),
    "mobilenet_v2": ("MobileNetV2", {}),
    "mobilenet_v3_small": ("MobileNetV3Small", {"dropout": 0.0}),
    "mobilenet_v3_large": ("MobileNetV3Large", {"dropout": 0.0}),
    "densenet121": ("DenseNet121", {}),
    "efficientnet_b0": ("EfficientNetB0", {"dropout": 0.0, "drop_connect": 0.0}),
}


def passes_of(name: str, *, spoil: str | None = None) -> tuple[float, nn.Module, Any]:
    """How far logits are apart, as a share of how far they are apart between images, and both networks."""
    theirs, params = NETWORKS[name]
    network = keras_network(theirs, side=SIDE)
    for layer in network.layers:
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    model = create_model(name, num_classes=CLASSES, **params).train()
    take_weights(model, network)
    if spoil is not None:
        spoilt = model.get_submodule(spoil)
        assert isinstance(spoilt, nn.Conv2d)
        model.add_module(spoil, symmetric(spoilt))
    images = images_of((SIDE, SIDE, 3)) - 0.5
    with torch.no_grad():
        expected: Tensor = network(images * pixel_scale(name), training=True).cpu()
        found = model(torch.from_numpy(images).permute(0, 3, 1, 2))
    return float((found - expected).abs().max() / expected.std(0).mean()), model, network


def pixel_scale(name: str) -> int:
    """EfficientNet divides pixels by 255 in Keras."""
    return 255 if name.startswith("efficientnet") else 1


def symmetric(layer: nn.Conv2d) -> nn.Conv2d:
    """The same convolution, with as much padding before as after each dimension."""
    other = nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,  # type: ignore[arg-type]
        stride=layer.stride,  # type: ignore[arg-type]
        padding=layer.kernel_size[0] // 2,
        groups=layer.groups,
        bias=False,
    )
    other.weight = layer.weight
    return other


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_and_batch_norms_are_those_of_keras(name: str) -> None:
    error, model, network = passes_of(name)
    assert error < TOLERANCE
    totals = LIGHT_TOTALS[name]
    assert network.count_params() == totals
    norms = {layer.name: layer for layer in network.layers if type(layer).__name__ == "BatchNormalization"}
    assert norms
    for layer_name, theirs in norms.items():
        ours = model.get_submodule(layer_name)
        assert isinstance(ours, nn.BatchNorm2d)
        assert ours.running_mean is not None
        assert ours.eps == theirs.epsilon
        assert ours.momentum == pytest.approx(1 - theirs.momentum)
        _, _, moving_mean, _ = theirs.get_weights()
        assert np.abs(ours.running_mean.numpy() - moving_mean).max() < 1e-5, layer_name


def test_symmetric_padding_would_differ() -> None:
    error, _, _ = passes_of("mobilenet_v3_small", spoil="expanded_conv_depthwise")
    assert error > 100 * TOLERANCE
