"""MobileNet v2: inverted residual blocks, whose ends have few channels and no activation.

Names, initial weights, epsilon and momentum are those of Keras.
"""

from torch import nn

from drivetrain.models.zoo.layers import Add, GlobalMean
from drivetrain.models.zoo.photographs.mobile_layers import (
    InvertedResidual,
    InvertedResidualModel,
    convolution,
    depthwise,
    pointwise,
)

_STEM_WIDTH, _TOP_WIDTH = 32, 1280
# Keras' momentum of 0.999 weights the old value.
_BN_EPS, _BN_MOMENTUM = 1e-3, 0.001
_EXPANSION = 6
# The channels, the number of blocks and the stride of the first block of each stack.
_STACKS = ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))


class MobileNetV2(InvertedResidualModel):
    """A strided convolution, 17 blocks, a 1x1 convolution, global mean pooling, a classifier."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self._stem = self.add_layers(
            {
                "Conv1": convolution(channels, _STEM_WIDTH, 3, stride=2),
                "bn_Conv1": _batch_norm(_STEM_WIDTH),
                "Conv1_relu": nn.ReLU6(),
            }
        )
        self._blocks = []
        width = _STEM_WIDTH
        for new_width, num_blocks, first_stride in _STACKS:
            for index in range(num_blocks):
                self._add_block(width, new_width, stride=first_stride if index == 0 else 1)
                width = new_width
        self._top = self.add_layers(
            {
                "Conv_1": pointwise(width, _TOP_WIDTH),
                "Conv_1_bn": _batch_norm(_TOP_WIDTH),
                "out_relu": nn.ReLU6(),
                "avg_pool": GlobalMean(),
                "predictions": nn.Linear(_TOP_WIDTH, num_classes),
            }
        )

    def _add_block(self, width: int, new_width: int, *, stride: int) -> None:
        number = len(self._blocks)
        prefix = f"block_{number}_" if number else "expanded_conv_"
        inner = width * _EXPANSION if number else width
        widen: dict[str, nn.Module] = {}
        if number:
            widen = {
                f"{prefix}expand": pointwise(width, inner),
                f"{prefix}expand_BN": _batch_norm(inner),
                f"{prefix}expand_relu": nn.ReLU6(),
            }
        widen |= {
            f"{prefix}depthwise": depthwise(inner, 3, stride=stride),
            f"{prefix}depthwise_BN": _batch_norm(inner),
            f"{prefix}depthwise_relu": nn.ReLU6(),
        }
        narrow = {
            f"{prefix}project": pointwise(inner, new_width),
            f"{prefix}project_BN": _batch_norm(new_width),
        }
        adds = {f"{prefix}add": Add()} if stride == 1 and width == new_width else {}
        self._blocks.append(
            InvertedResidual(
                widen=self.add_layers(widen),
                gate=(),
                multiply=None,
                narrow=self.add_layers(narrow),
                add=next(iter(self.add_layers(adds)), None),
            )
        )


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)


def mobilenet_v2(*, channels: int, num_classes: int) -> MobileNetV2:
    """The network of full width."""
    return MobileNetV2(channels=channels, num_classes=num_classes)
