"""VGG-16 and VGG-19 without batch norm; in place of the dense top, global average pooling and a classifier.

Layers have the names that they have in Keras. Initial weights are those of Keras: Glorot uniform, biases 0.
"""

from torch import nn

from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import ConvRelu, GlobalMean

_WIDTHS = (64, 128, 256, 512, 512)


class Vgg(LayerGraph):
    """Five blocks of 3x3 convolutions, each followed by max pooling, then a classifier; returns logits."""

    def __init__(self, *, convolutions_per_block: tuple[int, ...], channels: int, num_classes: int) -> None:
        super().__init__()
        width = channels
        for block, (count, new_width) in enumerate(
            zip(convolutions_per_block, _WIDTHS, strict=True), start=1
        ):
            for index in range(1, count + 1):
                self.add(f"block{block}_conv{index}", ConvRelu(width, new_width, 3, padding=1))
                width = new_width
            self.add(f"block{block}_pool", nn.MaxPool2d(2))
        self.add("avg_pool", GlobalMean())
        self.add("predictions", nn.Linear(width, num_classes))


def vgg16(*, channels: int, num_classes: int) -> Vgg:
    """Two or three convolutions per block."""
    return Vgg(convolutions_per_block=(2, 2, 3, 3, 3), channels=channels, num_classes=num_classes)


def vgg19(*, channels: int, num_classes: int) -> Vgg:
    """Two or four convolutions per block."""
    return Vgg(convolutions_per_block=(2, 2, 4, 4, 4), channels=channels, num_classes=num_classes)
