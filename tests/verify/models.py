"""Models of users' own that verifications in tests measure."""

import torch
from torch import Tensor, nn

from drivetrain.pipeline.cutting.marks import assign_stages


class Noisy(nn.Module):
    """Draws noise for the whole micro-batch from torch's own generator, so its size changes the result."""

    def __init__(self, *, channels: int, image_size: int, num_classes: int) -> None:
        super().__init__()
        self.line = nn.Linear(channels * image_size**2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.line(images.flatten(1) + torch.rand(images.shape[0], 1))
        return outputs


class Plain(nn.Module):
    """A convolution with torch's own batch norm and dropout."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.line = nn.Linear(4, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        features = torch.nn.functional.elu(self.norm(self.conv(images)))
        outputs: Tensor = self.line(self.drop(features).mean((2, 3)))
        return outputs


class OwnNorm(nn.BatchNorm2d):
    """A kind of batch norm that nobody but its author knows."""

    def forward(self, inputs: Tensor) -> Tensor:
        statistics, momentum = (self.running_mean, self.running_var), (self.momentum or 0.0) / 2
        uses_batch = self.training or self.running_mean is None
        return 2 * nn.functional.batch_norm(
            inputs, *statistics, self.weight, self.bias, uses_batch, momentum, self.eps
        )


def with_own_norm(*, channels: int, num_classes: int) -> nn.Module:
    """The plain model, with batch norm of a kind that moves its statistics by itself."""
    model = Plain(channels=channels, num_classes=num_classes)
    model.norm = OwnNorm(4)
    return model


class Float32Only(Plain):
    """Makes a weight of its own in float32, which nothing else in a float64 model fits."""

    def forward(self, images: Tensor) -> Tensor:
        kernel = torch.ones(images.shape[1], 1, 1, 1)
        return super().forward(nn.functional.conv2d(images, kernel, groups=images.shape[1]))


class Silent(Plain):
    """Nothing it has learnt, or could learn, reaches its output."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * 0


class Branching(Plain):
    """Looks at its images before it decides what to do, which no graph of layers can tell."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(-images if images.mean() < -1e9 else images)


class Marked(Plain):
    """Says itself which of its modules belong to which of three stages."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__(channels=channels, num_classes=num_classes)
        assign_stages({"conv": 0, "norm": 1, "drop": 2, "line": 2}, self)


class Counting(Plain):
    """Counts its passes in a buffer of whole numbers, so the number of micro-batches changes it."""

    passes: Tensor

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__(channels=channels, num_classes=num_classes)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
        return super().forward(images)


class Branched(nn.Module):
    """Blocks of parallel 3x3 and 1x1 convolutions with a stride, as in RepVGG and MobileOne."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self.wide = nn.ModuleList([nn.Conv2d(channels, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)])
        self.narrow = nn.ModuleList([nn.Conv2d(channels, 8, 1, 2), nn.Conv2d(8, 16, 1, 2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(16)])
        self.line = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        features = images
        for wide, narrow, norm in zip(self.wide, self.narrow, self.norms, strict=True):
            branch = narrow(features)
            branch += wide(features)
            features = torch.nn.functional.elu(norm(branch))
        outputs: Tensor = self.line(features.mean((2, 3)))
        return outputs
