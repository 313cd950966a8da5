"""Random rotation of images with their labels."""

from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.mirrored_sampling import offsets_from_middle, sample_from
from drivetrain.data.draws import draw_around_zero
from drivetrain.devices.device import wide_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotate:
    """About the middle, by any angle up to `degrees` either way; `padding` zeros on each side stay."""

    degrees: float
    num_classes: int
    padding: int = 0

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The angle of each sample in degrees."""
        return draw_around_zero(seed, "rotate", spread=self.degrees, passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Turned images and labels."""
        # In double precision: vectorised and scalar float32 sines may differ in the last bit.
        angle = draws[:, 0, None, None].to(wide_dtype(draws.device)) * (pi / 180)
        cosine, sine = angle.cos().to(torch.float32), angle.sin().to(torch.float32)
        x = offsets_from_middle(images.shape[3] - 2 * self.padding, images)[None, None, :]
        y = offsets_from_middle(images.shape[2] - 2 * self.padding, images)[None, :, None]
        return sample_from(
            images,
            labels,
            x=cosine * x + sine * y,
            y=cosine * y - sine * x,
            padding=self.padding,
            num_classes=self.num_classes,
        )
