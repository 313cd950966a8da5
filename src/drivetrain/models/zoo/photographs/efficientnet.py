"""EfficientNet B0 to B3: one network, scaled in width and depth together.

Names, initial weights, rates of dropout, epsilon and momentum are those of Keras, whose kernel of a
squeeze-and-excitation layer includes its activation. Drop-connect leaves out the whole branch of a sample.
Keras rescales and normalises the pixels inside its network, which stores 7 numbers for it (3 means,
3 variances and a count); here `--normalisation` does.
"""

import math
from typing import NamedTuple

from torch import nn

from drivetrain.models.from_keras.torch_layers import DropPath
from drivetrain.models.zoo.check_params import check_share
from drivetrain.models.zoo.initialise import Initialiser, fan_out_uniform, he_normal, he_normal_fan_out
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

_STEM_WIDTH, _TOP_WIDTH = 32, 1280
# Keras' momentum of 0.99 weights the old value.
_BN_EPS, _BN_MOMENTUM = 1e-3, 0.01
_SQUEEZE = 0.25
_DROP_CONNECT = 0.2


class _Stack(NamedTuple):
    """A stack of B0: its blocks widen the channels `expansion`-fold; the first has the stride."""

    width: int
    num_blocks: int
    kernel_size: int
    stride: int
    expansion: int


_STACKS = (
    _Stack(16, 1, 3, 1, 1),
    _Stack(24, 2, 3, 2, 6),
    _Stack(40, 2, 5, 2, 6),
    _Stack(80, 3, 3, 2, 6),
    _Stack(112, 3, 5, 1, 6),
    _Stack(192, 4, 5, 2, 6),
    _Stack(320, 1, 3, 1, 6),
)


class EfficientNet(InvertedResidualModel):
    """A strided convolution, seven stacks of blocks, a 1x1 convolution, pooling, dropout, a classifier.

    The rate at which a block's branch is left out grows with depth, up to almost `drop_connect`.
    """

    def __init__(
        self,
        *,
        width_factor: float,
        depth_factor: float,
        channels: int,
        num_classes: int,
        dropout: float,
        drop_connect: float,
    ) -> None:
        super().__init__()
        width = rounded_width(_STEM_WIDTH * width_factor)
        self._stem = self.add_layers(
            {
                "stem_conv": convolution(channels, width, 3, stride=2),
                "stem_bn": _batch_norm(width),
                "stem_activation": nn.SiLU(),
            }
        )
        self._blocks = []
        repeats = [math.ceil(stack.num_blocks * depth_factor) for stack in _STACKS]
        for number, (stack, num_blocks) in enumerate(zip(_STACKS, repeats, strict=True), start=1):
            for index in range(num_blocks):
                self._add_block(
                    f"block{number}{chr(ord('a') + index)}_",
                    stack._replace(
                        width=rounded_width(stack.width * width_factor), stride=1 if index else stack.stride
                    ),
                    width,
                    drop_rate=drop_connect * len(self._blocks) / sum(repeats),
                )
                width = rounded_width(stack.width * width_factor)
        top_width = rounded_width(_TOP_WIDTH * width_factor)
        self._top = self.add_layers(
            {
                "top_conv": pointwise(width, top_width),
                "top_bn": _batch_norm(top_width),
                "top_activation": nn.SiLU(),
                "avg_pool": GlobalMean(),
                "top_dropout": nn.Dropout(dropout),
                "predictions": nn.Linear(top_width, num_classes),
            }
        )

    def _add_block(self, prefix: str, block: _Stack, width: int, *, drop_rate: float) -> None:
        inner = width * block.expansion
        widen: dict[str, nn.Module] = {}
        if block.expansion > 1:
            widen = {
                f"{prefix}expand_conv": pointwise(width, inner),
                f"{prefix}expand_bn": _batch_norm(inner),
                f"{prefix}expand_activation": nn.SiLU(),
            }
        widen |= {
            f"{prefix}dwconv": depthwise(inner, block.kernel_size, stride=block.stride),
            f"{prefix}bn": _batch_norm(inner),
            f"{prefix}activation": nn.SiLU(),
        }
        gate = _gate(f"{prefix}se_", inner, squeezed=max(1, int(width * _SQUEEZE)))
        narrow: dict[str, nn.Module] = {
            f"{prefix}project_conv": pointwise(inner, block.width),
            f"{prefix}project_bn": _batch_norm(block.width),
        }
        has_shortcut = block.stride == 1 and width == block.width
        if has_shortcut and drop_rate > 0:
            narrow[f"{prefix}drop"] = DropPath(drop_rate)
        self._blocks.append(
            InvertedResidual(
                widen=self.add_layers(widen),
                gate=self.add_layers(gate),
                multiply=next(iter(self.add_layers({f"{prefix}se_excite": Multiply()}))),
                narrow=self.add_layers(narrow),
                add=next(iter(self.add_layers({f"{prefix}add": Add()} if has_shortcut else {})), None),
            )
        )

    def initialiser_of(self, parameter_name: str) -> Initialiser:
        layer_name, _, role = parameter_name.rpartition(".")
        layer = self.get_submodule(layer_name)
        if role == "weight" and isinstance(layer, nn.Linear):
            return fan_out_uniform
        if role == "weight" and isinstance(layer, nn.Conv2d):
            # The fan_out of a depthwise kernel in Keras is its fan_in in the layout of torch.
            return he_normal if layer.groups > 1 else he_normal_fan_out
        return super().initialiser_of(parameter_name)


def _gate(prefix: str, width: int, *, squeezed: int) -> dict[str, nn.Module]:
    """Squeeze-and-excitation: a factor from 0 to 1 for each channel, from the means of all."""
    return {
        f"{prefix}squeeze": SpatialMean(),
        f"{prefix}reduce": pointwise(width, squeezed, bias=True),
        f"{prefix}reduce_activation": nn.SiLU(),
        f"{prefix}expand": pointwise(squeezed, width, bias=True),
        f"{prefix}expand_activation": nn.Sigmoid(),
    }


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)


def _efficientnet(
    width_factor: float,
    depth_factor: float,
    *,
    channels: int,
    num_classes: int,
    dropout: float,
    drop_connect: float,
) -> EfficientNet:
    check_share("dropout", dropout)
    check_share("drop_connect", drop_connect)
    return EfficientNet(
        width_factor=width_factor,
        depth_factor=depth_factor,
        channels=channels,
        num_classes=num_classes,
        dropout=dropout,
        drop_connect=drop_connect,
    )


def efficientnet_b0(
    *, channels: int, num_classes: int, dropout: float = 0.2, drop_connect: float = _DROP_CONNECT
) -> EfficientNet:
    """The network that the others scale."""
    return _efficientnet(
        1.0, 1.0, channels=channels, num_classes=num_classes, dropout=dropout, drop_connect=drop_connect
    )


def efficientnet_b1(
    *, channels: int, num_classes: int, dropout: float = 0.2, drop_connect: float = _DROP_CONNECT
) -> EfficientNet:
    """As wide as B0, and deeper."""
    return _efficientnet(
        1.0, 1.1, channels=channels, num_classes=num_classes, dropout=dropout, drop_connect=drop_connect
    )


def efficientnet_b2(
    *, channels: int, num_classes: int, dropout: float = 0.3, drop_connect: float = _DROP_CONNECT
) -> EfficientNet:
    """Wider and deeper than B1."""
    return _efficientnet(
        1.1, 1.2, channels=channels, num_classes=num_classes, dropout=dropout, drop_connect=drop_connect
    )


def efficientnet_b3(
    *, channels: int, num_classes: int, dropout: float = 0.3, drop_connect: float = _DROP_CONNECT
) -> EfficientNet:
    """Wider and deeper than B2."""
    return _efficientnet(
        1.2, 1.4, channels=channels, num_classes=num_classes, dropout=dropout, drop_connect=drop_connect
    )
