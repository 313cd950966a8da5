"""A segmentation model, which returns a dictionary."""

from typing import Any

from torch import Tensor, nn


class Fcn(nn.Module):
    """A backbone and a classifier of pixels."""

    def __init__(self, *, num_classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.classifier = nn.Conv2d(4, num_classes, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"out": self.classifier(self.backbone(images))}


def fcn_small(
    *, weights: Any = None, weights_backbone: Any = "a download", num_classes: int = 21, aux_loss: bool = True
) -> nn.Module:
    """A small segmentation model."""
    assert weights is None, "a download"
    assert weights_backbone is None, "a download"
    assert not aux_loss
    return Fcn(num_classes=num_classes)
