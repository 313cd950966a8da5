"""Layers and blocks of the networks that are made of 1x1 and depthwise convolutions."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from drivetrain.models.zoo.initialise import InitialisedModel
from drivetrain.models.zoo.layers import Conv2dSame

__all__ = [
    "InvertedResidual",
    "InvertedResidualModel",
    "Multiply",
    "SpatialMean",
    "convolution",
    "depthwise",
    "pointwise",
    "rounded_width",
]

_WIDTH_STEP = 8


class SpatialMean(nn.Module):
    """The mean of each channel over all pixels, as an image of one pixel."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((2, 3), keepdim=True)


class Multiply(nn.Module):
    """Multiplies each channel of the features by its gate."""

    def forward(self, features: Tensor, gate: Tensor) -> Tensor:
        return features * gate


class InvertedResidual(NamedTuple):
    """The layer names of one block in execution order.

    `gate` reads the output of `widen`, which `multiply` multiplies by it; a block without one has no
    `multiply`. A block whose input is not added to its output has no `add`.
    """

    widen: tuple[str, ...]
    gate: tuple[str, ...]
    multiply: str | None
    narrow: tuple[str, ...]
    add: str | None


class InvertedResidualModel(InitialisedModel):
    """A stem, blocks that widen, convolve depthwise and narrow again, and a top; returns logits."""

    _stem: tuple[str, ...]
    _blocks: list[InvertedResidual]
    _top: tuple[str, ...]

    def add_layers(self, layers: Mapping[str, nn.Module]) -> tuple[str, ...]:
        """Registers layers in the order given; returns their names."""
        for name, layer in layers.items():
            self.add_module(name, layer)
        return tuple(layers)

    def forward(self, images: Tensor) -> Tensor:
        features = self._run(self._stem, images)
        for block in self._blocks:
            features = self._run_block(block, features)
        return self._run(self._top, features)

    def _run_block(self, block: InvertedResidual, inputs: Tensor) -> Tensor:
        features = self._run(block.widen, inputs)
        if block.multiply:
            features = getattr(self, block.multiply)(features, self._run(block.gate, features))
        features = self._run(block.narrow, features)
        return getattr(self, block.add)(features, inputs) if block.add else features

    def _run(self, names: tuple[str, ...], inputs: Tensor) -> Tensor:
        outputs = inputs
        for name in names:
            outputs = getattr(self, name)(outputs)
        return outputs


def convolution(width: int, new_width: int, kernel_size: int, *, stride: int, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias, with the "same" padding of Keras."""
    if stride > 1:
        return Conv2dSame(width, new_width, kernel_size, stride=stride, groups=groups, bias=False)
    return nn.Conv2d(width, new_width, kernel_size, padding=kernel_size // 2, groups=groups, bias=False)


def depthwise(width: int, kernel_size: int, *, stride: int) -> nn.Conv2d:
    """A convolution of each channel by itself, without bias, with the "same" padding of Keras."""
    return convolution(width, width, kernel_size, stride=stride, groups=width)


def pointwise(width: int, new_width: int, *, bias: bool = False) -> nn.Conv2d:
    """A 1x1 convolution."""
    return nn.Conv2d(width, new_width, 1, bias=bias)


def rounded_width(wished: float) -> int:
    """The multiple of 8 nearest to a number of channels, but not below 90% of it."""
    width = max(_WIDTH_STEP, int(wished + _WIDTH_STEP / 2) // _WIDTH_STEP * _WIDTH_STEP)
    return width + _WIDTH_STEP if width < 0.9 * wished else width
