"""Residual networks for small images: three stacks whose channels double, 6n + 2 layers deep.

With 16 channels in the first stack they are the networks of the paper; wider ones learn more per update.
"""

from typing import NamedTuple

from torch import Tensor, nn

from drivetrain.models.zoo.check_params import check_whole
from drivetrain.models.zoo.initialise import InitialisedModel, Initialiser, variance_scaling
from drivetrain.models.zoo.layers import Add, Conv2dSame, GlobalMean, Shortcut

_STACKS = 3
_WIDTH = 16
# The epsilon of the ResNets in Keras. torch's momentum weights the new value: 0.03 is 0.97 in Keras' terms.
_BN_EPS = 1.001e-5
_BN_MOMENTUM = 0.03


class _Block(NamedTuple):
    """The layer names of one residual block, in execution order; `shortcut` None is the identity."""

    branch: tuple[str, ...]
    shortcut: str | None
    add: str
    relu: str


class CifarResNet(InitialisedModel):
    """A convolution, three stacks of residual blocks, global mean pooling, a classifier; returns logits."""

    def __init__(self, *, blocks_per_stack: int, channels: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.conv1_conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.conv1_bn = _batch_norm(width)
        self.conv1_relu = nn.ReLU()
        self._blocks: list[_Block] = []
        for stack in range(2, 2 + _STACKS):
            new_width = width if stack == 2 else 2 * width
            for index in range(1, blocks_per_stack + 1):
                self._blocks.append(self._add_block(f"conv{stack}_block{index}", width, new_width))
                width = new_width
        self.avg_pool = GlobalMean()
        self.fc_layer = nn.Linear(width, num_classes)

    def _add_block(self, prefix: str, width: int, new_width: int) -> _Block:
        """Registers one block's layers; a block that widens also halves height and width."""
        downsamples = new_width != width
        first_conv = f"{prefix}_layer1_conv_ds" if downsamples else f"{prefix}_layer1_conv"
        layers: dict[str, nn.Module] = {
            first_conv: _convolution(width, new_width, downsamples=downsamples),
            f"{prefix}_layer1_bn": _batch_norm(new_width),
            f"{prefix}_layer1_relu": nn.ReLU(),
            f"{prefix}_layer2_conv": _convolution(new_width, new_width, downsamples=False),
            f"{prefix}_layer2_bn": _batch_norm(new_width),
        }
        branch = tuple(layers)
        shortcut = f"{prefix}_shortcut" if downsamples else None
        if shortcut is not None:
            layers[shortcut] = Shortcut(new_channels=new_width - width)
        block = _Block(branch, shortcut, add=f"{prefix}_add", relu=f"{prefix}_post_addition_relu")
        layers |= {block.add: Add(), block.relu: nn.ReLU()}
        for name, layer in layers.items():
            self.add_module(name, layer)
        return block

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.conv1_relu(self.conv1_bn(self.conv1_conv(images)))
        for block in self._blocks:
            features = self._run_block(block, features)
        logits: Tensor = self.fc_layer(self.avg_pool(features))
        return logits

    def _run_block(self, block: _Block, inputs: Tensor) -> Tensor:
        branch = inputs
        for name in block.branch:
            branch = getattr(self, name)(branch)
        shortcut = getattr(self, block.shortcut)(inputs) if block.shortcut else inputs
        outputs: Tensor = getattr(self, block.relu)(getattr(self, block.add)(branch, shortcut))
        return outputs

    def initialiser_of(self, parameter_name: str) -> Initialiser:
        layer = self.get_submodule(parameter_name.rpartition(".")[0])
        return variance_scaling if isinstance(layer, nn.Conv2d) else super().initialiser_of(parameter_name)


def _convolution(width: int, new_width: int, *, downsamples: bool) -> nn.Conv2d:
    if downsamples:
        return Conv2dSame(width, new_width, 3, stride=2, bias=False)
    return nn.Conv2d(width, new_width, 3, padding=1, bias=False)


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)


def _cifar_resnet(blocks_per_stack: int, *, channels: int, num_classes: int, width: int) -> CifarResNet:
    check_whole("width", width, example=_WIDTH)
    return CifarResNet(
        blocks_per_stack=blocks_per_stack, channels=channels, num_classes=num_classes, width=width
    )


def cifar_resnet8(*, channels: int, num_classes: int, width: int = _WIDTH) -> CifarResNet:
    """One block per stack."""
    return _cifar_resnet(1, channels=channels, num_classes=num_classes, width=width)


def cifar_resnet20(*, channels: int, num_classes: int, width: int = _WIDTH) -> CifarResNet:
    """Three blocks per stack."""
    return _cifar_resnet(3, channels=channels, num_classes=num_classes, width=width)


def cifar_resnet32(*, channels: int, num_classes: int, width: int = _WIDTH) -> CifarResNet:
    """Five blocks per stack."""
    return _cifar_resnet(5, channels=channels, num_classes=num_classes, width=width)


def cifar_resnet44(*, channels: int, num_classes: int, width: int = _WIDTH) -> CifarResNet:
    """Seven blocks per stack."""
    return _cifar_resnet(7, channels=channels, num_classes=num_classes, width=width)


def cifar_resnet56(*, channels: int, num_classes: int, width: int = _WIDTH) -> CifarResNet:
    """Nine blocks per stack."""
    return _cifar_resnet(9, channels=channels, num_classes=num_classes, width=width)
