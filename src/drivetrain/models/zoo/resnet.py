"""ResNet-18 to ResNet-152 for photographs, with the stride in the 3x3 convolutions (ResNet v1.5).

The layers run in the order in which Keras lists them: the convolution of a shortcut comes directly before the
last convolution of its block.
"""

from typing import NamedTuple

from torch import Tensor, nn

from drivetrain.models.zoo.check_params import check_switch, check_whole
from drivetrain.models.zoo.initialise import InitialisedModel, Initialiser, variance_scaling, zeros
from drivetrain.models.zoo.layers import Add, GlobalMean

_WIDTH = 64
_BOTTLENECK_GROWTH = 4
# The epsilon of the ResNets in Keras. torch's momentum weights the new value: 0.03 is 0.97 in Keras' terms.
BN_EPS = 1.001e-5
_BN_MOMENTUM = 0.03


class _Block(NamedTuple):
    """The layer names of one residual block; without shortcut layers, the shortcut is the identity."""

    before_last: tuple[str, ...]
    last_conv: str
    last_bn: str
    shortcut_conv: str | None
    shortcut_bn: str | None
    add: str
    out: str


class ResNet(InitialisedModel):
    """A stem that shrinks the image fourfold, four stacks of residual blocks, a classifier; returns logits.

    The first block of every stack has a convolution in its shortcut; `first_shortcut=False` leaves out that
    of the first stack, which a network of basic blocks does not need. A bottleneck block reduces the channels
    with a 1x1 convolution, applies a 3x3 one and widens fourfold; a basic block has two 3x3 convolutions.
    """

    def __init__(
        self,
        *,
        blocks_per_stack: tuple[int, ...],
        bottleneck: bool,
        channels: int,
        num_classes: int,
        stem_width: int = _WIDTH,
        first_shortcut: bool = True,
    ) -> None:
        super().__init__()
        self._bottleneck = bottleneck
        self.conv1_conv = nn.Conv2d(channels, stem_width, 7, stride=2, padding=3, bias=False)
        self.conv1_bn = _batch_norm(stem_width)
        self.conv1_relu = nn.ReLU()
        self.pool1_pool = nn.MaxPool2d(3, stride=2, padding=1)
        self._blocks: list[_Block] = []
        width = stem_width
        for stack, num_blocks in enumerate(blocks_per_stack, start=2):
            inner_width = stem_width * 2 ** (stack - 2)
            for index in range(1, num_blocks + 1):
                stride = 2 if index == 1 and stack > 2 else 1
                has_shortcut = index == 1 and (first_shortcut or stack > 2)
                prefix = f"conv{stack}_block{index}"
                self._blocks.append(
                    self._add_block(prefix, width, inner_width, stride=stride, has_shortcut=has_shortcut)
                )
                width = inner_width * (_BOTTLENECK_GROWTH if bottleneck else 1)
        self.avg_pool = GlobalMean()
        self.predictions = nn.Linear(width, num_classes)

    def _add_block(
        self, prefix: str, width: int, inner_width: int, *, stride: int, has_shortcut: bool
    ) -> _Block:
        """Registers one block's layers in the order they run."""
        convolutions = self._convolutions(width, inner_width, stride=stride)
        new_width = convolutions[-1].out_channels
        for position, convolution in enumerate(convolutions[:-1], start=1):
            self.add_module(f"{prefix}_{position}_conv", convolution)
            self.add_module(f"{prefix}_{position}_bn", _batch_norm(convolution.out_channels))
            self.add_module(f"{prefix}_{position}_relu", nn.ReLU())
        last = len(convolutions)
        block = _Block(
            before_last=tuple(
                f"{prefix}_{position}_{step}"
                for position in range(1, last)
                for step in ("conv", "bn", "relu")
            ),
            last_conv=f"{prefix}_{last}_conv",
            last_bn=f"{prefix}_{last}_bn",
            shortcut_conv=f"{prefix}_0_conv" if has_shortcut else None,
            shortcut_bn=f"{prefix}_0_bn" if has_shortcut else None,
            add=f"{prefix}_add",
            out=f"{prefix}_out",
        )
        if block.shortcut_conv:
            self.add_module(block.shortcut_conv, _convolution(width, new_width, 1, stride=stride))
        self.add_module(block.last_conv, convolutions[-1])
        if block.shortcut_bn:
            self.add_module(block.shortcut_bn, _batch_norm(new_width))
        self.add_module(block.last_bn, _batch_norm(new_width))
        self.add_module(block.add, Add())
        self.add_module(block.out, nn.ReLU())
        return block

    def _convolutions(self, width: int, inner_width: int, *, stride: int) -> list[nn.Conv2d]:
        """The convolutions of a block's main branch."""
        if not self._bottleneck:
            return [
                _convolution(width, inner_width, 3, stride=stride),
                _convolution(inner_width, inner_width, 3, stride=1),
            ]
        return [
            _convolution(width, inner_width, 1, stride=1),
            _convolution(inner_width, inner_width, 3, stride=stride),
            _convolution(inner_width, inner_width * _BOTTLENECK_GROWTH, 1, stride=1),
        ]

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.pool1_pool(self.conv1_relu(self.conv1_bn(self.conv1_conv(images))))
        for block in self._blocks:
            features = self._run_block(block, features)
        logits: Tensor = self.predictions(self.avg_pool(features))
        return logits

    def _run_block(self, block: _Block, inputs: Tensor) -> Tensor:
        branch = inputs
        for name in block.before_last:
            branch = getattr(self, name)(branch)
        shortcut = getattr(self, block.shortcut_conv)(inputs) if block.shortcut_conv else inputs
        branch = getattr(self, block.last_conv)(branch)
        if block.shortcut_bn:
            shortcut = getattr(self, block.shortcut_bn)(shortcut)
        branch = getattr(self, block.last_bn)(branch)
        outputs: Tensor = getattr(self, block.out)(getattr(self, block.add)(branch, shortcut))
        return outputs

    def initialiser_of(self, parameter_name: str) -> Initialiser:
        """Bottleneck blocks with an identity shortcut start as the identity; the stem has Keras' default."""
        layer_name, _, role = parameter_name.rpartition(".")
        if role == "weight" and layer_name in self._zero_scales():
            return zeros
        is_block_convolution = layer_name.endswith("_conv") and layer_name != "conv1_conv"
        return variance_scaling if is_block_convolution else super().initialiser_of(parameter_name)

    def _zero_scales(self) -> list[str]:
        """The last batch norms of bottleneck blocks with an identity shortcut, whose scale starts at 0."""
        return [block.last_bn for block in self._blocks if self._bottleneck and not block.shortcut_conv]


def _convolution(width: int, new_width: int, kernel_size: int, *, stride: int) -> nn.Conv2d:
    return nn.Conv2d(width, new_width, kernel_size, stride=stride, padding=kernel_size // 2, bias=False)


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=BN_EPS, momentum=_BN_MOMENTUM)


def resnet18(*, channels: int, num_classes: int, width: int = _WIDTH, first_shortcut: bool = True) -> ResNet:
    """Basic blocks, two per stack; `first_shortcut=False` is the structure of torchvision."""
    return _basic_resnet(
        (2, 2, 2, 2), channels=channels, num_classes=num_classes, width=width, first_shortcut=first_shortcut
    )


def resnet34(*, channels: int, num_classes: int, width: int = _WIDTH, first_shortcut: bool = True) -> ResNet:
    """Basic blocks, three to six per stack; `first_shortcut=False` is the structure of torchvision."""
    return _basic_resnet(
        (3, 4, 6, 3), channels=channels, num_classes=num_classes, width=width, first_shortcut=first_shortcut
    )


def _basic_resnet(
    blocks_per_stack: tuple[int, ...], *, channels: int, num_classes: int, width: int, first_shortcut: bool
) -> ResNet:
    check_whole("width", width, example=_WIDTH)
    check_switch("first_shortcut", first_shortcut)
    return ResNet(
        blocks_per_stack=blocks_per_stack,
        bottleneck=False,
        channels=channels,
        num_classes=num_classes,
        stem_width=width,
        first_shortcut=first_shortcut,
    )


def resnet50(*, channels: int, num_classes: int) -> ResNet:
    """Bottleneck blocks, three to six per stack."""
    return ResNet(blocks_per_stack=(3, 4, 6, 3), bottleneck=True, channels=channels, num_classes=num_classes)


def resnet101(*, channels: int, num_classes: int) -> ResNet:
    """Bottleneck blocks, 23 in the third stack."""
    return ResNet(blocks_per_stack=(3, 4, 23, 3), bottleneck=True, channels=channels, num_classes=num_classes)


def resnet152(*, channels: int, num_classes: int) -> ResNet:
    """Bottleneck blocks, 8 in the second and 36 in the third stack."""
    return ResNet(blocks_per_stack=(3, 8, 36, 3), bottleneck=True, channels=channels, num_classes=num_classes)
