"""Histogram equalisation of batches of images."""

import torch
from torch import Tensor

_LEVELS = 256


def equalise(pixels: Tensor, _strength: Tensor) -> Tensor:
    """Spreads each channel's values so that all levels are about equally frequent."""
    samples, channels, height, width = pixels.shape
    levels = pixels.round().clamp_(0, _LEVELS - 1).to(torch.int64).reshape(samples * channels, height * width)
    counts = torch.zeros(len(levels), _LEVELS, dtype=torch.int64, device=pixels.device)
    counts.scatter_add_(1, levels, torch.ones_like(levels))
    spread = _tables(counts).gather(1, levels).view(samples, channels, height, width)
    return spread.to(torch.float32, memory_format=torch.channels_last)


def _tables(counts: Tensor) -> Tensor:
    """The new level of every old one; a channel with too few values to spread keeps its own."""
    own = torch.arange(_LEVELS, device=counts.device)
    brightest = torch.where(counts > 0, own, 0).amax(1, keepdim=True)
    step = (counts.sum(1, keepdim=True) - counts.gather(1, brightest)) // (_LEVELS - 1)
    darker = counts.cumsum(1) - counts
    spread = (darker + step // 2) // step.clamp(min=1)
    return torch.where(step > 0, spread.clamp(max=_LEVELS - 1), own)
