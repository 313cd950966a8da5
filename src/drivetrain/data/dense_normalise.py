"""The range of pixels that segmentation models see, in one place for training and prediction."""

import torch
from torch import Tensor

from drivetrain.data.source import DataSpec


def normalise_dense(images: Tensor, spec: DataSpec) -> Tensor:
    """uint8 as float32 in [-1, 1] ("symmetric") or [0, 1] ("unit"); floating images stay as they are."""
    if spec.image_dtype != "uint8":
        return images.to(torch.float32)
    assert spec.normalisation in ("symmetric", "unit"), "of whole images, not of pixels"
    pixels = images.to(torch.float32)
    return pixels / 127.5 - 1 if spec.normalisation == "symmetric" else pixels / 255
