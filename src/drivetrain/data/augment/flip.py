"""Random flips of images, or of images with their labels."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import draw_per_sample
from drivetrain.recipe.params import FlipDirection


@dataclass(frozen=True, slots=True)
class Flip:
    """Mirrors each image with probability 1/2."""

    direction: FlipDirection

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """1 where the image is mirrored, else 0."""
        return _draw_flips(seed, self.direction, passes=passes, indices=indices)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Mirrors the images whose number is 1."""
        return _mirrored(images, draws, axis=3 if self.direction == "horizontal" else 2)


@dataclass(frozen=True, slots=True)
class DenseFlip:
    """Mirrors each image together with its labels with probability 1/2."""

    direction: FlipDirection

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """1 where image and labels are mirrored, else 0."""
        return _draw_flips(seed, self.direction, passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Mirrors the images and labels whose number is 1."""
        # Images are (samples, channels, height, width), labels (samples, height, width, channels).
        of_images, of_labels = (3, 2) if self.direction == "horizontal" else (2, 1)
        return _mirrored(images, draws, axis=of_images), _mirrored(labels, draws, axis=of_labels)


def _draw_flips(
    seed: int, direction: FlipDirection, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    purpose = "flip" if direction == "horizontal" else "vertical flip"
    numbers = draw_per_sample(seed, purpose, passes=passes, indices=indices)
    return (numbers < 0.5).astype(np.float64)[..., np.newaxis]


def _mirrored(batch: Tensor, draws: Tensor, *, axis: int) -> Tensor:
    is_mirrored = draws[:, 0, None, None, None] > 0
    return torch.where(is_mirrored, batch.flip(axis), batch)
