"""Bends images with their labels: every pixel from somewhere else, mirrored beyond the borders."""

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from drivetrain.data.dense_planes import SampleMode, sample_labels


def sample_from(
    images: Tensor, labels: Tensor, *, x: Tensor, y: Tensor, padding: int, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Images and labels whose pixels come from `x`, `y`: offsets in pixels from the middle of the image.

    What lies inside a padding of zeros is bent, and the padding stays as it is: a model is never shown an
    image that is padded otherwise. The pixel at a border is seen twice in the mirror.
    """
    height, width = y.shape[1], x.shape[2]
    grid = torch.stack((x * (2 / width), y * (2 / height)), dim=-1)

    def sample(planes: Tensor, mode: SampleMode) -> Tensor:
        inside = planes[:, :, padding : padding + height, padding : padding + width]
        bent = grid_sample(inside, grid, mode=mode, padding_mode="reflection", align_corners=False)
        if not padding:
            return bent.contiguous(memory_format=torch.channels_last)
        canvas = torch.zeros_like(planes)
        canvas[:, :, padding : padding + height, padding : padding + width] = bent
        return canvas

    return sample(images, "bilinear"), sample_labels(labels, num_classes=num_classes, sample=sample)


def offsets_from_middle(length: int, like: Tensor) -> Tensor:
    """Where the pixels of a line lie, seen from its middle."""
    return torch.arange(length, device=like.device, dtype=torch.float32) + (0.5 - length / 2)
