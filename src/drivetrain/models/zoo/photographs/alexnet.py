"""AlexNet in one tower, as torchvision has it (Krizhevsky 2014), with the first AlexNet's initial weights.

Layers have the names of Caffe. Kernels are drawn from a normal distribution of deviation 0.01; the biases of
conv2, conv4, conv5, fc6 and fc7 start at 1, all others at 0 (Krizhevsky et al. 2012).
"""

from torch import nn

from drivetrain.models.zoo.check_params import check_share
from drivetrain.models.zoo.initialise import Initialiser, normal, ones, zeros
from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import ConvRelu

_DEVIATION = 0.01
_BIASED = ("conv2", "conv4", "conv5", "fc6", "fc7")
_POOLED_SIDE = 6
_HIDDEN = 4096


class AlexNet(LayerGraph):
    """Five convolutions, three poolings, an adaptive pooling to 6x6, three dense layers; returns logits."""

    def __init__(self, *, channels: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.add("conv1", ConvRelu(channels, 64, 11, stride=4, padding=2))
        self.add("pool1", nn.MaxPool2d(3, stride=2))
        self.add("conv2", ConvRelu(64, 192, 5, padding=2))
        self.add("pool2", nn.MaxPool2d(3, stride=2))
        self.add("conv3", ConvRelu(192, 384, 3, padding=1))
        self.add("conv4", ConvRelu(384, 256, 3, padding=1))
        self.add("conv5", ConvRelu(256, 256, 3, padding=1))
        self.add("pool5", nn.MaxPool2d(3, stride=2))
        self.add("avg_pool", nn.AdaptiveAvgPool2d(_POOLED_SIDE))
        self.add("flatten", nn.Flatten())
        features = 256 * _POOLED_SIDE**2
        for index in (6, 7):
            self.add(f"dropout{index}", nn.Dropout(dropout))
            self.add(f"fc{index}", nn.Linear(features, _HIDDEN))
            self.add(f"relu{index}", nn.ReLU())
            features = _HIDDEN
        self.add("fc8", nn.Linear(features, num_classes))

    def initialiser_of(self, parameter_name: str) -> Initialiser:
        layer_name, _, role = parameter_name.rpartition(".")
        if role == "bias":
            return ones if layer_name in _BIASED else zeros
        return normal(_DEVIATION)


def alexnet(*, channels: int, num_classes: int, dropout: float = 0.5) -> AlexNet:
    """The network of torchvision; `dropout` is the share of features set to zero in training."""
    check_share("dropout", dropout)
    return AlexNet(channels=channels, num_classes=num_classes, dropout=dropout)
