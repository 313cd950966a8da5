"""How labels are resampled along with their images."""

from typing import Literal, Protocol

import torch
from torch import Tensor

SampleMode = Literal["bilinear", "nearest"]


class DenseSampler(Protocol):
    """Resamples float32 planes (samples, planes, height, width), those of images as those of labels."""

    def __call__(self, planes: Tensor, mode: SampleMode) -> Tensor: ...


def sample_labels(labels: Tensor, *, num_classes: int, sample: DenseSampler) -> Tensor:
    """Labels (samples, height, width, label channels) in uint8, resampled.

    Of two classes the share of class 1 is sampled, and one half or more of it is class 1; of more classes
    the nearest pixel counts. Codes of border weights, in a second channel, are sampled and rounded.
    """
    planes = labels.permute(0, 3, 1, 2).to(torch.float32)
    if num_classes > 2:
        classes = sample(planes[:, :1], "nearest")
    else:
        classes = sample(planes[:, :1], "bilinear") >= 0.5
    parts = [classes.to(torch.uint8)]
    if planes.shape[1] > 1:
        parts.append(sample(planes[:, 1:], "bilinear").round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts, dim=1).permute(0, 2, 3, 1).contiguous()
