"""ResNet-50 to ResNet-152 as Keras has them: strides in the first 1x1 convolution, biases everywhere.

`resnet50` and its siblings are ResNet v1.5, without biases, with the stride in the 3x3 convolution and with
other initial weights. Layers here have the names that they have in Keras, and initial weights are those of
Keras: Glorot uniform, biases 0.
"""

from torch import nn

from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import Add, GlobalMean

_WIDTH = 64
_GROWTH = 4
_BN_EPS = 1.001e-5
# torch's momentum weights the new value: 0.01 is 0.99 in Keras' terms.
_BN_MOMENTUM = 0.01


class ResNetV1(LayerGraph):
    """A stem, four stacks of bottleneck blocks that end in a ReLU, a classifier; returns logits."""

    def __init__(self, *, blocks_per_stack: tuple[int, ...], channels: int, num_classes: int) -> None:
        super().__init__()
        self._add_normed("conv1", nn.Conv2d(channels, _WIDTH, 7, stride=2, padding=3))
        self.add("conv1_relu", nn.ReLU())
        self.add("pool1_pool", nn.MaxPool2d(3, stride=2, padding=1))
        width = _WIDTH
        for stack, num_blocks in enumerate(blocks_per_stack, start=2):
            inner_width = _WIDTH * 2 ** (stack - 2)
            for index in range(1, num_blocks + 1):
                stride = 2 if index == 1 and stack > 2 else 1
                self._add_block(
                    f"conv{stack}_block{index}", width, inner_width, stride=stride, is_first=index == 1
                )
                width = inner_width * _GROWTH
        self.add("avg_pool", GlobalMean())
        self.add("predictions", nn.Linear(width, num_classes))

    def _add_block(self, prefix: str, width: int, inner_width: int, *, stride: int, is_first: bool) -> None:
        """Adds a block; only the first of a stack has a convolution in its shortcut."""
        inputs, new_width = self.last_layer, inner_width * _GROWTH
        self._add_normed(f"{prefix}_1", nn.Conv2d(width, inner_width, 1, stride=stride))
        self.add(f"{prefix}_1_relu", nn.ReLU())
        self._add_normed(f"{prefix}_2", nn.Conv2d(inner_width, inner_width, 3, padding=1))
        self.add(f"{prefix}_2_relu", nn.ReLU())
        branch = self._add_normed(f"{prefix}_3", nn.Conv2d(inner_width, new_width, 1))
        shortcut = inputs
        if is_first:
            convolution = nn.Conv2d(width, new_width, 1, stride=stride)
            shortcut = self._add_normed(f"{prefix}_0", convolution, inputs)
        self.add(f"{prefix}_add", Add(), branch, shortcut)
        self.add(f"{prefix}_out", nn.ReLU())

    def _add_normed(self, prefix: str, convolution: nn.Conv2d, *sources: str) -> str:
        self.add(f"{prefix}_conv", convolution, *sources)
        norm = nn.BatchNorm2d(convolution.out_channels, eps=_BN_EPS, momentum=_BN_MOMENTUM)
        return self.add(f"{prefix}_bn", norm)


def resnet50v1(*, channels: int, num_classes: int) -> ResNetV1:
    """Three to six blocks per stack."""
    return ResNetV1(blocks_per_stack=(3, 4, 6, 3), channels=channels, num_classes=num_classes)


def resnet101v1(*, channels: int, num_classes: int) -> ResNetV1:
    """23 blocks in the third stack."""
    return ResNetV1(blocks_per_stack=(3, 4, 23, 3), channels=channels, num_classes=num_classes)


def resnet152v1(*, channels: int, num_classes: int) -> ResNetV1:
    """8 blocks in the second and 36 in the third stack."""
    return ResNetV1(blocks_per_stack=(3, 8, 36, 3), channels=channels, num_classes=num_classes)
