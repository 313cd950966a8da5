"""MobileNet v3, small and large: inverted residual blocks with squeeze-and-excitation and hard swish.

Names, initial weights, epsilon and momentum are those of Keras, where activations have no names. The
published top has another 1x1 convolution between pooling and classifier, which is left out here. Keras scales
the pixels inside its network; here `--normalisation` does.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from drivetrain.models.zoo.check_params import check_share
from drivetrain.models.zoo.layers import Add, GlobalMean
from drivetrain.models.zoo.photographs.mobile_layers import (
    InvertedResidual,
    InvertedResidualModel,
    Multiply,
    SpatialMean,
    convolution,
    depthwise,
    pointwise,
    rounded_width,
)

_STEM_WIDTH = 16
# Keras' momentum of 0.999 weights the old value.
_BN_EPS, _BN_MOMENTUM = 1e-3, 0.001
_SQUEEZE = 0.25
_TOP_EXPANSION = 6
_DROPOUT = 0.2


class _Block(NamedTuple):
    """The sizes of one block: `inner` channels between its ends, `width` at its end."""

    inner: int
    width: int
    kernel_size: int
    stride: int
    has_gate: bool
    activation: Callable[[], nn.Module]


_SMALL = (
    _Block(16, 16, 3, 2, True, nn.ReLU),
    _Block(72, 24, 3, 2, False, nn.ReLU),
    _Block(88, 24, 3, 1, False, nn.ReLU),
    _Block(96, 40, 5, 2, True, nn.Hardswish),
    _Block(240, 40, 5, 1, True, nn.Hardswish),
    _Block(240, 40, 5, 1, True, nn.Hardswish),
    _Block(120, 48, 5, 1, True, nn.Hardswish),
    _Block(144, 48, 5, 1, True, nn.Hardswish),
    _Block(288, 96, 5, 2, True, nn.Hardswish),
    _Block(576, 96, 5, 1, True, nn.Hardswish),
    _Block(576, 96, 5, 1, True, nn.Hardswish),
)
_LARGE = (
    _Block(16, 16, 3, 1, False, nn.ReLU),
    _Block(64, 24, 3, 2, False, nn.ReLU),
    _Block(72, 24, 3, 1, False, nn.ReLU),
    _Block(72, 40, 5, 2, True, nn.ReLU),
    _Block(120, 40, 5, 1, True, nn.ReLU),
    _Block(120, 40, 5, 1, True, nn.ReLU),
    _Block(240, 80, 3, 2, False, nn.Hardswish),
    _Block(200, 80, 3, 1, False, nn.Hardswish),
    _Block(184, 80, 3, 1, False, nn.Hardswish),
    _Block(184, 80, 3, 1, False, nn.Hardswish),
    _Block(480, 112, 3, 1, True, nn.Hardswish),
    _Block(672, 112, 3, 1, True, nn.Hardswish),
    _Block(672, 160, 5, 2, True, nn.Hardswish),
    _Block(960, 160, 5, 1, True, nn.Hardswish),
    _Block(960, 160, 5, 1, True, nn.Hardswish),
)


class MobileNetV3(InvertedResidualModel):
    """A strided convolution, blocks, a 1x1 convolution, global mean pooling, dropout, a classifier."""

    def __init__(
        self, *, blocks: tuple[_Block, ...], channels: int, num_classes: int, dropout: float
    ) -> None:
        super().__init__()
        self._stem = self.add_layers(
            {
                "conv": convolution(channels, _STEM_WIDTH, 3, stride=2),
                "conv_bn": _batch_norm(_STEM_WIDTH),
                "conv_activation": nn.Hardswish(),
            }
        )
        self._blocks = []
        width = _STEM_WIDTH
        for block in blocks:
            self._add_block(block, width)
            width = block.width
        top_width = _TOP_EXPANSION * width
        self._top = self.add_layers(
            {
                "conv_1": pointwise(width, top_width),
                "conv_1_bn": _batch_norm(top_width),
                "conv_1_activation": nn.Hardswish(),
                "avg_pool": GlobalMean(),
                "dropout": nn.Dropout(dropout),
                "predictions": nn.Linear(top_width, num_classes),
            }
        )

    def _add_block(self, block: _Block, width: int) -> None:
        number = len(self._blocks)
        prefix = f"expanded_conv_{number}_" if number else "expanded_conv_"
        widen: dict[str, nn.Module] = {}
        if number:
            widen = {
                f"{prefix}expand": pointwise(width, block.inner),
                f"{prefix}expand_bn": _batch_norm(block.inner),
                f"{prefix}expand_activation": block.activation(),
            }
        widen |= {
            f"{prefix}depthwise": depthwise(block.inner, block.kernel_size, stride=block.stride),
            f"{prefix}depthwise_bn": _batch_norm(block.inner),
            f"{prefix}depthwise_activation": block.activation(),
        }
        gate = _gate(f"{prefix}squeeze_excite_", block.inner) if block.has_gate else {}
        multiply = {f"{prefix}squeeze_excite_mul": Multiply()} if block.has_gate else {}
        narrow = {
            f"{prefix}project": pointwise(block.inner, block.width),
            f"{prefix}project_bn": _batch_norm(block.width),
        }
        adds = {f"{prefix}add": Add()} if block.stride == 1 and width == block.width else {}
        self._blocks.append(
            InvertedResidual(
                widen=self.add_layers(widen),
                gate=self.add_layers(gate),
                multiply=next(iter(self.add_layers(multiply)), None),
                narrow=self.add_layers(narrow),
                add=next(iter(self.add_layers(adds)), None),
            )
        )


def _gate(prefix: str, width: int) -> dict[str, nn.Module]:
    """Squeeze-and-excitation: a factor from 0 to 1 for each channel, from the means of all."""
    squeezed = rounded_width(width * _SQUEEZE)
    return {
        f"{prefix}avg_pool": SpatialMean(),
        f"{prefix}conv": pointwise(width, squeezed, bias=True),
        f"{prefix}relu": nn.ReLU(),
        f"{prefix}conv_1": pointwise(squeezed, width, bias=True),
        f"{prefix}hard_sigmoid": nn.Hardsigmoid(),
    }


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)


def mobilenet_v3_small(*, channels: int, num_classes: int, dropout: float = _DROPOUT) -> MobileNetV3:
    """Eleven blocks."""
    check_share("dropout", dropout)
    return MobileNetV3(blocks=_SMALL, channels=channels, num_classes=num_classes, dropout=dropout)


def mobilenet_v3_large(*, channels: int, num_classes: int, dropout: float = _DROPOUT) -> MobileNetV3:
    """Fifteen blocks."""
    check_share("dropout", dropout)
    return MobileNetV3(blocks=_LARGE, channels=channels, num_classes=num_classes, dropout=dropout)
