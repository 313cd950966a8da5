"""Random rotation and elastic deformation of images with their labels."""

from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from drivetrain.core.element_hash import draw_gaussian
from drivetrain.data.augment.technique import KEY_COLUMNS, draw_keys, keys_from
from drivetrain.data.draws import draw_around_zero
from drivetrain.data.preprocess import SampleMode, sample_labels
from drivetrain.devices.device import wide_dtype

_LEAST_SPACING = 64
# In deviations of the shift. Two grid points swap places, and fold the image, only if their shifts differ by
# this much.
_SHIFTS_PER_SPACING = 8


def sample_from(
    images: Tensor, labels: Tensor, *, x: Tensor, y: Tensor, padding: int, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Resamples images and labels at `x`, `y`: offsets in pixels from the middle of the image.

    Only the image inside the padding is warped. The zeros around it stay, because validation images have the
    same padding. Outside the image, pixels are mirrored, with the border pixel repeated.
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
    """Offsets of the pixels of a line from its middle."""
    return torch.arange(length, device=like.device, dtype=torch.float32) + (0.5 - length / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """Elastic deformation: shifts the points of a coarse grid at random and interpolates between them.

    Shifts are Gaussian with a deviation of `shift` pixels along each axis; the interpolation is bicubic. Grid
    points are at least 64 pixels and at least 8 x `shift` apart, so that images are bent but not folded. The
    `padding` zeros on each side stay.
    """

    shift: float
    num_classes: int
    padding: int = 0

    @property
    def columns(self) -> int:
        return KEY_COLUMNS

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws the key of each sample's shifts."""
        return draw_keys(seed, "elastic", passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Deforms images and labels."""
        height, width = (side - 2 * self.padding for side in images.shape[2:])
        points = (len(images), 2, self._intervals(height) + 1, self._intervals(width) + 1)
        shifts = draw_gaussian(keys_from(draws), points[1] * points[2] * points[3]).view(points) * self.shift
        field = interpolate(shifts, size=(height, width), mode="bicubic", align_corners=True)
        return sample_from(
            images,
            labels,
            x=field[:, 0] + offsets_from_middle(width, images)[None, None, :],
            y=field[:, 1] + offsets_from_middle(height, images)[None, :, None],
            padding=self.padding,
            num_classes=self.num_classes,
        )

    def _intervals(self, length: int) -> int:
        return max(1, int(length / max(_LEAST_SPACING, _SHIFTS_PER_SPACING * self.shift)))


def largest_shift(side: int) -> float:
    """The largest shift that does not fold an image of this side."""
    return side / _SHIFTS_PER_SPACING


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotate:
    """Rotates about the middle by up to `degrees` either way; `padding` zeros on each side stay."""

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
        """Rotates images and labels."""
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
