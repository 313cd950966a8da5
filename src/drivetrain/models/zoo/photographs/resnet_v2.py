"""ResNet-50 to ResNet-152 of the second version, as Keras has them: norms and ReLUs before convolutions.

The last block of a stack has the stride, not the first block of the next one. Layers have the names that they
have in Keras, and initial weights are those of Keras: Glorot uniform, biases 0.
"""

from torch import nn

from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import Add, GlobalMean

_WIDTH = 64
_GROWTH = 4
_BN_EPS = 1.001e-5
# torch's momentum weights the new value: 0.01 is 0.99 in Keras' terms.
_BN_MOMENTUM = 0.01


class ResNetV2(LayerGraph):
    """A stem without norm, four stacks of pre-activation blocks, a norm, a classifier; returns logits."""

    def __init__(self, *, blocks_per_stack: tuple[int, ...], channels: int, num_classes: int) -> None:
        super().__init__()
        self.add("conv1_conv", nn.Conv2d(channels, _WIDTH, 7, stride=2, padding=3))
        # Padding of the pooling itself would ignore the border; here no ReLU makes that the same as zeros.
        self.add("pool1_pad", nn.ZeroPad2d(1))
        self.add("pool1_pool", nn.MaxPool2d(3, stride=2))
        width, last_stack = _WIDTH, len(blocks_per_stack) + 1
        for stack, num_blocks in enumerate(blocks_per_stack, start=2):
            inner_width = _WIDTH * 2 ** (stack - 2)
            for index in range(1, num_blocks + 1):
                stride = 2 if index == num_blocks and stack < last_stack else 1
                self._add_block(
                    f"conv{stack}_block{index}", width, inner_width, stride=stride, is_first=index == 1
                )
                width = inner_width * _GROWTH
        self._add_activation("post", width)
        self.add("avg_pool", GlobalMean())
        self.add("predictions", nn.Linear(width, num_classes))

    def _add_block(self, prefix: str, width: int, inner_width: int, *, stride: int, is_first: bool) -> None:
        """Adds a block; only the first of a stack has a convolution in its shortcut."""
        inputs, new_width = self.last_layer, inner_width * _GROWTH
        activated = self._add_activation(f"{prefix}_preact", width)
        self.add(f"{prefix}_1_conv", nn.Conv2d(width, inner_width, 1, bias=False))
        self._add_activation(f"{prefix}_1", inner_width)
        convolution = nn.Conv2d(inner_width, inner_width, 3, stride=stride, padding=1, bias=False)
        self.add(f"{prefix}_2_conv", convolution)
        branch = self._add_activation(f"{prefix}_2", inner_width)
        shortcut = inputs
        if is_first:
            shortcut = self.add(f"{prefix}_0_conv", nn.Conv2d(width, new_width, 1, stride=stride), activated)
        elif stride > 1:
            # Average pooling with a window of one pixel takes every second pixel, and keeps no indices.
            shortcut = self.add(f"{prefix}_0_pool", nn.AvgPool2d(1, stride=stride), inputs)
        branch = self.add(f"{prefix}_3_conv", nn.Conv2d(inner_width, new_width, 1), branch)
        self.add(f"{prefix}_out", Add(), branch, shortcut)

    def _add_activation(self, prefix: str, width: int) -> str:
        self.add(f"{prefix}_bn", nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM))
        return self.add(f"{prefix}_relu", nn.ReLU())


def resnet50v2(*, channels: int, num_classes: int) -> ResNetV2:
    """Three to six blocks per stack."""
    return ResNetV2(blocks_per_stack=(3, 4, 6, 3), channels=channels, num_classes=num_classes)


def resnet101v2(*, channels: int, num_classes: int) -> ResNetV2:
    """23 blocks in the third stack."""
    return ResNetV2(blocks_per_stack=(3, 4, 23, 3), channels=channels, num_classes=num_classes)


def resnet152v2(*, channels: int, num_classes: int) -> ResNetV2:
    """8 blocks in the second and 36 in the third stack."""
    return ResNetV2(blocks_per_stack=(3, 8, 36, 3), channels=channels, num_classes=num_classes)
