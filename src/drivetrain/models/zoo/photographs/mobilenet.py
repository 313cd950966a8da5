"""MobileNet v1: depthwise 3x3 convolutions, each followed by a 1x1 convolution.

Names, initial weights, epsilon and momentum are those of Keras, whose top is a 1x1 convolution in place of
the last layer here, which computes the same. Strided depthwise convolutions pad below and to the right only.
"""

from torch import Tensor, nn

from drivetrain.models.zoo.check_params import check_share
from drivetrain.models.zoo.initialise import InitialisedModel
from drivetrain.models.zoo.layers import GlobalMean
from drivetrain.models.zoo.photographs.mobile_layers import convolution, depthwise, pointwise

_STEM_WIDTH = 32
# Keras' momentum of 0.99 weights the old value.
_BN_EPS, _BN_MOMENTUM = 1e-3, 0.01
# The channels and the stride of each block.
_BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *((512, 1),) * 5,
    (1024, 2),
    (1024, 1),
)
_DROPOUT = 0.001


class MobileNet(InitialisedModel):
    """A strided convolution, 13 blocks, global mean pooling, dropout, a classifier; returns logits."""

    def __init__(self, *, channels: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = convolution(channels, _STEM_WIDTH, 3, stride=2)
        self._add_norm("conv1", _STEM_WIDTH)
        width = _STEM_WIDTH
        for number, (new_width, stride) in enumerate(_BLOCKS, start=1):
            self._add_block(number, width, new_width, stride=stride)
            width = new_width
        self.avg_pool = GlobalMean()
        self.dropout = nn.Dropout(dropout)
        self.predictions = nn.Linear(width, num_classes)

    def _add_block(self, number: int, width: int, new_width: int, *, stride: int) -> None:
        if stride > 1:
            self.add_module(f"conv_pad_{number}", nn.ZeroPad2d((0, 1, 0, 1)))
            filters = nn.Conv2d(width, width, 3, stride=stride, groups=width, bias=False)
        else:
            filters = depthwise(width, 3, stride=1)
        self.add_module(f"conv_dw_{number}", filters)
        self._add_norm(f"conv_dw_{number}", width)
        self.add_module(f"conv_pw_{number}", pointwise(width, new_width))
        self._add_norm(f"conv_pw_{number}", new_width)

    def _add_norm(self, prefix: str, width: int) -> None:
        self.add_module(f"{prefix}_bn", nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM))
        self.add_module(f"{prefix}_relu", nn.ReLU6())

    def forward(self, images: Tensor) -> Tensor:
        outputs = images
        for layer in self.children():
            outputs = layer(outputs)
        return outputs


def mobilenet(*, channels: int, num_classes: int, dropout: float = _DROPOUT) -> MobileNet:
    """The network of full width."""
    check_share("dropout", dropout)
    return MobileNet(channels=channels, num_classes=num_classes, dropout=dropout)
