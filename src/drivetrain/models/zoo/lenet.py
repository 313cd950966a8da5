"""LeNet for small colour images, with padded convolutions of 3x3, as a comparison of devices published it.

The network of 1998 has convolutions of 5x5 without padding, and 84 features before the last layer. Initial
weights are those of Keras: Glorot uniform, biases 0.
"""

from torch import nn

from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import ConvRelu

_WIDTHS = (6, 16)
_HIDDEN = (120, 80)


class LeNet(LayerGraph):
    """Two convolutions, each followed by average pooling, and three dense layers; returns logits."""

    def __init__(self, *, channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        width, side = channels, image_size
        for index, new_width in enumerate(_WIDTHS, start=1):
            self.add(f"conv{index}", ConvRelu(width, new_width, 3, padding=1))
            self.add(f"pool{index}", nn.AvgPool2d(2))
            width, side = new_width, side // 2
        self.add("flatten", nn.Flatten())
        features = width * side**2
        for index, new_features in enumerate(_HIDDEN, start=1):
            self.add(f"dense{index}", nn.Linear(features, new_features))
            self.add(f"relu{index}", nn.ReLU())
            features = new_features
        self.add("predictions", nn.Linear(features, num_classes))


def lenet(*, channels: int, image_size: int, num_classes: int) -> LeNet:
    """The network of two convolutions and three dense layers."""
    return LeNet(channels=channels, image_size=image_size, num_classes=num_classes)
