"""Crops at random and stretches the crop to the size of the canvas; the aspect ratio is not kept."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import draw_per_sample
from drivetrain.data.preprocess import SampleMode, sample_labels
from drivetrain.devices.device import wide_dtype

_LARGEST_CUT = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class CropAndResize:
    """Cuts up to 30 % off each side independently and stretches the remaining box to the canvas."""

    num_classes: int

    @property
    def columns(self) -> int:
        return 4

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws top, left, bottom and right of each box, as fractions of the canvas."""
        top, left, below, beside = (
            _LARGEST_CUT * draw_per_sample(seed, f"dense crop {side}", passes=passes, indices=indices)
            for side in ("top", "left", "bottom", "right")
        )
        return np.stack([top, left, 1 - below, 1 - beside], axis=-1)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Stretches the boxes of images and labels to the canvas."""
        top, left, bottom, right = draws.to(wide_dtype(draws.device)).unbind(1)
        rows = _places(top, bottom, length=images.shape[2])
        columns = _places(left, right, length=images.shape[3])

        def sample(planes: Tensor, mode: SampleMode) -> Tensor:
            lines = _lines_at(planes.permute(0, 2, 3, 1), rows, mode=mode)
            lines = _lines_at(lines.transpose(1, 2), columns, mode=mode)
            return lines.transpose(1, 2).contiguous().permute(0, 3, 1, 2)

        return sample(images, "bilinear"), sample_labels(labels, num_classes=self.num_classes, sample=sample)


def _places(first: Tensor, last: Tensor, *, length: int) -> Tensor:
    """Source positions of the pixels of a stretched line; the ends of the box map to the ends of the line."""
    # A line of one pixel has no step: `max` avoids a division by 0.
    steps = torch.arange(length, device=first.device, dtype=first.dtype) / max(length - 1, 1)
    places = (first[:, None] + (last - first)[:, None] * steps) * (length - 1)
    return places.clamp(0, length - 1)


def _lines_at(pixels: Tensor, places: Tensor, *, mode: SampleMode) -> Tensor:
    """Lines of each image (samples, lines, ...) at fractional places (samples, new lines)."""
    if mode == "nearest":
        return _take(pixels, (places + 0.5).floor())
    below = places.floor()
    above = (below + 1).clamp(max=pixels.shape[1] - 1)
    share_above = (places - below).to(torch.float32)[:, :, None, None]
    return torch.lerp(_take(pixels, below), _take(pixels, above), share_above)


def _take(pixels: Tensor, lines: Tensor) -> Tensor:
    samples, count = pixels.shape[:2]
    start = torch.arange(samples, device=pixels.device)[:, None] * count
    flat = pixels.reshape(samples * count, *pixels.shape[2:])
    taken = flat.index_select(0, (start + lines.to(torch.int64)).view(-1))
    return taken.view(samples, -1, *pixels.shape[2:])
