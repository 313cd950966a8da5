"""A stand-in for segmentation_models_pytorch 0.5: two architectures and two encoders."""

from typing import Any

import torch
from segmentation_models_pytorch import encoders
from torch import Tensor, nn

__all__ = ["MODEL_ARCHITECTURES_MAPPING", "create_model", "encoders"]


class Fpn(nn.Module):
    """Halves the image `encoder_depth` times, and refuses what does not divide."""

    requires_divisible_input_shape = True

    def __init__(
        self,
        encoder_name: str = "resnet4",
        encoder_depth: int = 5,
        encoder_weights: str | None = "imagenet",
        in_channels: int = 3,
        classes: int = 1,
    ) -> None:
        super().__init__()
        assert encoder_weights is None, "a download"
        self.step = 2**encoder_depth
        self.encoder = nn.Conv2d(in_channels, 4, 3, padding=1)
        self.decoder = nn.Conv2d(4, 4, 3, padding=1)
        self.segmentation_head = nn.Conv2d(4, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        if self.requires_divisible_input_shape and images.shape[-1] % self.step:
            raise RuntimeError("Wrong input shape")
        masks: Tensor = self.segmentation_head(torch.relu(self.decoder(torch.relu(self.encoder(images)))))
        return masks


class Unet(Fpn):
    """Any size."""

    requires_divisible_input_shape = False


MODEL_ARCHITECTURES_MAPPING = {"unet": Unet, "fpn": Fpn}


def create_model(arch: str, encoder_name: str = "resnet4", **arguments: Any) -> nn.Module:
    return MODEL_ARCHITECTURES_MAPPING[arch](encoder_name=encoder_name, **arguments)
