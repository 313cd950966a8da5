"""Random elastic deformation of images with their labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from drivetrain.core.element_hash import draw_gaussian
from drivetrain.data.augment.element_keys import KEY_COLUMNS, draw_keys, keys_from
from drivetrain.data.augment.mirrored_sampling import offsets_from_middle, sample_from

_LEAST_SPACING = 64
# Points of the grid change places only where their shifts differ by so many deviations.
_SHIFTS_PER_SPACING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """The points of a coarse grid are shifted, everything between them follows by cubic interpolation.

    Shifts are normal with a deviation of `shift` pixels along each axis. The grid's points are 64 pixels
    apart, or 8 shifts if that is more, so that images are bent but not folded; `padding` zeros on each side
    stay.
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
        """The key of each sample's shifts."""
        return draw_keys(seed, "elastic", passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Bent images and labels."""
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
