"""DenseNet-121, 169 and 201: every block reads the outputs of all blocks before it in its stack.

Names, initial weights, epsilon and momentum are those of Keras.
"""

from torch import Tensor, nn

from drivetrain.models.zoo.initialise import InitialisedModel
from drivetrain.models.zoo.layers import Concatenate, GlobalMean

_STEM_WIDTH = 64
_GROWTH = 32
_BOTTLENECK = 4 * _GROWTH
# Keras' momentum of 0.99 weights the old value.
_BN_EPS, _BN_MOMENTUM = 1.001e-5, 0.01


class DenseNet(InitialisedModel):
    """A stem that shrinks the image fourfold, four stacks of dense blocks, a classifier; returns logits.

    Each block adds 32 channels to those it reads. A transition between two stacks halves channels, height
    and width.
    """

    def __init__(self, *, blocks_per_stack: tuple[int, ...], channels: int, num_classes: int) -> None:
        super().__init__()
        self._stem = self._add_layers(
            {
                "conv1_conv": nn.Conv2d(channels, _STEM_WIDTH, 7, stride=2, padding=3, bias=False),
                "conv1_bn": _batch_norm(_STEM_WIDTH),
                "conv1_relu": nn.ReLU(),
                "pool1": nn.MaxPool2d(3, stride=2, padding=1),
            }
        )
        # Of each block the layers and the concatenation; a transition has no concatenation.
        self._blocks: list[tuple[tuple[str, ...], str | None]] = []
        width = _STEM_WIDTH
        for stack, num_blocks in enumerate(blocks_per_stack, start=2):
            for index in range(1, num_blocks + 1):
                self._add_block(f"conv{stack}_block{index}", width)
                width += _GROWTH
            if stack < 1 + len(blocks_per_stack):
                self._add_transition(f"pool{stack}", width)
                width //= 2
        self._top = self._add_layers(
            {
                "bn": _batch_norm(width),
                "relu": nn.ReLU(),
                "avg_pool": GlobalMean(),
                "predictions": nn.Linear(width, num_classes),
            }
        )

    def _add_block(self, prefix: str, width: int) -> None:
        layers = self._add_layers(
            {
                f"{prefix}_0_bn": _batch_norm(width),
                f"{prefix}_0_relu": nn.ReLU(),
                f"{prefix}_1_conv": nn.Conv2d(width, _BOTTLENECK, 1, bias=False),
                f"{prefix}_1_bn": _batch_norm(_BOTTLENECK),
                f"{prefix}_1_relu": nn.ReLU(),
                f"{prefix}_2_conv": nn.Conv2d(_BOTTLENECK, _GROWTH, 3, padding=1, bias=False),
            }
        )
        self.add_module(f"{prefix}_concat", Concatenate())
        self._blocks.append((layers, f"{prefix}_concat"))

    def _add_transition(self, prefix: str, width: int) -> None:
        layers = self._add_layers(
            {
                f"{prefix}_bn": _batch_norm(width),
                f"{prefix}_relu": nn.ReLU(),
                f"{prefix}_conv": nn.Conv2d(width, width // 2, 1, bias=False),
                f"{prefix}_pool": nn.AvgPool2d(2),
            }
        )
        self._blocks.append((layers, None))

    def _add_layers(self, layers: dict[str, nn.Module]) -> tuple[str, ...]:
        for name, layer in layers.items():
            self.add_module(name, layer)
        return tuple(layers)

    def forward(self, images: Tensor) -> Tensor:
        features = self._run(self._stem, images)
        for layers, concatenate in self._blocks:
            grown = self._run(layers, features)
            features = getattr(self, concatenate)(features, grown) if concatenate else grown
        return self._run(self._top, features)

    def _run(self, names: tuple[str, ...], inputs: Tensor) -> Tensor:
        outputs = inputs
        for name in names:
            outputs = getattr(self, name)(outputs)
        return outputs


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)


def densenet121(*, channels: int, num_classes: int) -> DenseNet:
    """Stacks of 6 to 24 blocks."""
    return DenseNet(blocks_per_stack=(6, 12, 24, 16), channels=channels, num_classes=num_classes)


def densenet169(*, channels: int, num_classes: int) -> DenseNet:
    """Stacks of 6 to 32 blocks."""
    return DenseNet(blocks_per_stack=(6, 12, 32, 32), channels=channels, num_classes=num_classes)


def densenet201(*, channels: int, num_classes: int) -> DenseNet:
    """Stacks of 6 to 48 blocks."""
    return DenseNet(blocks_per_stack=(6, 12, 48, 32), channels=channels, num_classes=num_classes)
