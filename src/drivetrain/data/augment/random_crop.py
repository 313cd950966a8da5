"""Random crop out of an image with a border of zeros; the size stays."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import draw_per_sample
from drivetrain.data.preprocess import channels_last_view


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedCrop:
    """Shifts every image by up to `padding` pixels each way; what comes in from outside is 0."""

    padding: int = 4

    @property
    def columns(self) -> int:
        return 2

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The crop's first row and column in the padded image, all places alike."""
        places = 2 * self.padding + 1
        numbers = [
            draw_per_sample(seed, purpose, passes=passes, indices=indices)
            for purpose in ("crop top", "crop left")
        ]
        return np.floor(np.stack(numbers, axis=-1) * places)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The cropped images, channels last: one gather of windows that are views of the padded batch."""
        samples, channels, height, width = images.shape
        border = self.padding
        padded = images.new_zeros(samples, height + 2 * border, width + 2 * border, channels)
        padded[:, border : border + height, border : border + width] = images.permute(0, 2, 3, 1)
        sample, row, pixel, value = padded.stride()
        windows = padded.as_strided(
            (samples, 2 * border + 1, 2 * border + 1, height, width * channels),
            (sample, row, pixel, row, value),
        )
        top, left = draws.to(torch.int64).unbind(1)
        cropped = windows[torch.arange(samples, device=images.device), top, left]
        return channels_last_view(cropped.view(samples, height, width, channels))
