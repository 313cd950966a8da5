"""The small convolutional network of the handwritten-digits tutorial."""

from torch import Tensor, nn

from drivetrain.models.zoo.check_params import check_share
from drivetrain.models.zoo.initialise import InitialisedModel


class MnistCnn(InitialisedModel):
    """Two convolutions, each followed by 2x2 max-pooling, then dropout and a classifier; returns logits."""

    def __init__(self, *, channels: int, image_size: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        pooled_size = ((image_size - 2) // 2 - 2) // 2
        self.conv2d_0 = nn.Conv2d(channels, 32, 3)
        self.max_pooling2d_0 = nn.MaxPool2d(2)
        self.relu_0 = nn.ReLU()
        self.conv2d_1 = nn.Conv2d(32, 64, 3)
        self.max_pooling2d_1 = nn.MaxPool2d(2)
        self.relu_1 = nn.ReLU()
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(64 * pooled_size**2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        # ReLU and max-pooling commute exactly; after pooling, the ReLU has a quarter of the work.
        features = self.relu_0(self.max_pooling2d_0(self.conv2d_0(images)))
        features = self.relu_1(self.max_pooling2d_1(self.conv2d_1(features)))
        logits: Tensor = self.dense(self.dropout(self.flatten(features)))
        return logits


def mnist_cnn(*, channels: int, image_size: int, num_classes: int, dropout: float = 0.5) -> MnistCnn:
    """The tutorial's model; `dropout` is the share of features set to zero in training."""
    check_share("dropout", dropout)
    return MnistCnn(channels=channels, image_size=image_size, num_classes=num_classes, dropout=dropout)
