"""A network of a few hundred parameters, to try things out."""

from torch import Tensor, nn

from drivetrain.models.zoo.initialise import InitialisedModel

_POOL = 5


class ToyModel(InitialisedModel):
    """Two convolutions, each followed by 5x5 max-pooling, and a classifier; returns logits."""

    def __init__(self, *, channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        pooled_size = (image_size - 2) // _POOL // _POOL
        self.conv2d_0 = nn.Conv2d(channels, 4, 3)
        self.max_pooling2d_0 = nn.MaxPool2d(_POOL)
        self.relu_0 = nn.ReLU()
        self.conv2d_1 = nn.Conv2d(4, 8, 1)
        self.max_pooling2d_1 = nn.MaxPool2d(_POOL)
        self.relu_1 = nn.ReLU()
        self.flatten = nn.Flatten()
        self.dense = nn.Linear(8 * pooled_size**2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        # ReLU and max-pooling commute exactly; after pooling, the ReLU has 1/25 of the work.
        features = self.relu_0(self.max_pooling2d_0(self.conv2d_0(images)))
        features = self.relu_1(self.max_pooling2d_1(self.conv2d_1(features)))
        logits: Tensor = self.dense(self.flatten(features))
        return logits


def toy_model(*, channels: int, image_size: int, num_classes: int) -> ToyModel:
    """A model that trains in seconds; images must be large enough for two 5x5 poolings."""
    return ToyModel(channels=channels, image_size=image_size, num_classes=num_classes)
