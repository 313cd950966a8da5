"""Xception: depthwise separable convolutions with residual connections.

Layers have the names that they have in Keras. A separable convolution is two layers here, and the layers of
shortcuts, which have no names there, are called residual. Initial weights are those of Keras: Glorot uniform.
"""

from torch import nn

from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import Add, GlobalMean, MaxPoolSame

_ENTRY_WIDTHS = (128, 256, 728)
_MIDDLE_BLOCKS = range(5, 13)
_MIDDLE_WIDTH = 728
_BN_EPS = 1e-3
# torch's momentum weights the new value: 0.01 is 0.99 in Keras' terms.
_BN_MOMENTUM = 0.01


class Xception(LayerGraph):
    """Entry, middle and exit flow, then a classifier; returns logits."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self._add_convolution("block1_conv1", nn.Conv2d(channels, 32, 3, stride=2, bias=False))
        self._add_convolution("block1_conv2", nn.Conv2d(32, 64, 3, bias=False))
        width = 64
        for block, new_width in enumerate(_ENTRY_WIDTHS, start=2):
            self._add_shrinking_block(f"block{block}", (width, new_width, new_width), begins=block > 2)
            width = new_width
        for block in _MIDDLE_BLOCKS:
            self._add_middle_block(f"block{block}")
        self._add_shrinking_block("block13", (_MIDDLE_WIDTH, _MIDDLE_WIDTH, 1024), begins=True)
        self._add_separable("block14_sepconv1", 1024, 1536)
        self.add("block14_sepconv1_act", nn.ReLU())
        self._add_separable("block14_sepconv2", 1536, 2048)
        self.add("block14_sepconv2_act", nn.ReLU())
        self.add("avg_pool", GlobalMean())
        self.add("predictions", nn.Linear(2048, num_classes))

    def _add_convolution(self, name: str, convolution: nn.Conv2d) -> None:
        self.add(name, convolution)
        self.add(f"{name}_bn", _batch_norm(convolution.out_channels))
        self.add(f"{name}_act", nn.ReLU())

    def _add_shrinking_block(self, prefix: str, widths: tuple[int, int, int], *, begins: bool) -> None:
        """Adds a block that halves height and width; `begins` tells whether it begins with a ReLU."""
        inputs, (width, inner_width, new_width) = self.last_layer, widths
        if begins:
            self.add(f"{prefix}_sepconv1_act", nn.ReLU())
        self._add_separable(f"{prefix}_sepconv1", width, inner_width)
        self.add(f"{prefix}_sepconv2_act", nn.ReLU())
        self._add_separable(f"{prefix}_sepconv2", inner_width, new_width)
        branch = self.add(f"{prefix}_pool", MaxPoolSame())
        shortcut = nn.Conv2d(width, new_width, 1, stride=2, bias=False)
        self.add(f"{prefix}_residual_conv", shortcut, inputs)
        residual = self.add(f"{prefix}_residual_bn", _batch_norm(new_width))
        self.add(f"{prefix}_add", Add(), branch, residual)

    def _add_middle_block(self, prefix: str) -> None:
        inputs = self.last_layer
        for index in (1, 2, 3):
            self.add(f"{prefix}_sepconv{index}_act", nn.ReLU())
            self._add_separable(f"{prefix}_sepconv{index}", _MIDDLE_WIDTH, _MIDDLE_WIDTH)
        self.add(f"{prefix}_add", Add(), self.last_layer, inputs)

    def _add_separable(self, name: str, width: int, new_width: int) -> None:
        """Adds a convolution of each channel, one across channels and a norm."""
        depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.add(f"{name}_depthwise", depthwise)
        self.add(f"{name}_pointwise", nn.Conv2d(width, new_width, 1, bias=False))
        self.add(f"{name}_bn", _batch_norm(new_width))


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)


def xception(*, channels: int, num_classes: int) -> Xception:
    """The network of 36 convolutional layers."""
    return Xception(channels=channels, num_classes=num_classes)
