"""RandAugment: a few operations per image, drawn from a fixed set, all of one strength."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.colour import (
    autocontrast,
    brightness,
    contrast,
    posterise,
    saturation,
    sharpness,
    solarise,
)
from drivetrain.data.augment.equalise import equalise
from drivetrain.data.augment.shape import rotate, shear_x, shear_y, translate_x, translate_y
from drivetrain.data.augment.technique import draw_per_sample
from drivetrain.data.preprocess import channels_last_view

_STRONGEST = 10


def _identity(pixels: Tensor, _strength: Tensor) -> Tensor:
    return pixels


# Each takes float32 pixels from 0 to 255 and one strength from -1 to 1 per image.
OPERATIONS = (
    _identity,
    autocontrast,
    equalise,
    rotate,
    solarise,
    saturation,
    posterise,
    contrast,
    brightness,
    sharpness,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandAugment:
    """So many `operations` per image one after the other, of a `magnitude` from 0 to 10 either way."""

    operations: int
    magnitude: float

    @property
    def columns(self) -> int:
        return 2 * self.operations

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """For each turn the number of an operation, and its strength with a sign."""
        columns = []
        for turn in range(self.operations):
            chosen, sign = (
                draw_per_sample(seed, f"rand-augment {purpose} {turn}", passes=passes, indices=indices)
                for purpose in ("operation", "sign")
            )
            columns.append(np.floor(chosen * len(OPERATIONS)))
            columns.append(np.where(sign < 0.5, -1, 1) * self.magnitude / _STRONGEST)
        return np.stack(columns, axis=-1)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The changed images as float32, channels last."""
        apply_turn = apply_in_groups if images.device.type == "cpu" else apply_everywhere
        pixels = images.to(torch.float32).permute(0, 2, 3, 1).contiguous()
        for turn in range(self.operations):
            pixels = apply_turn(pixels, draws[:, 2 * turn].to(torch.int64), draws[:, 2 * turn + 1])
        return channels_last_view(pixels)


def apply_in_groups(pixels: Tensor, chosen: Tensor, strengths: Tensor) -> Tensor:
    """Each operation on the images that drew it; pixels are (samples, height, width, channels)."""
    changed = torch.empty_like(pixels)
    for number in sorted(set(chosen.tolist())):
        here = (chosen == number).nonzero().view(-1)
        group = channels_last_view(pixels.index_select(0, here))
        result = OPERATIONS[number](group, strengths.index_select(0, here))
        changed.index_copy_(0, here, result.permute(0, 2, 3, 1))
    return changed


def apply_everywhere(pixels: Tensor, chosen: Tensor, strengths: Tensor) -> Tensor:
    """The same for a device that must not be asked which image drew what: all operations on all images."""
    images = channels_last_view(pixels)
    changed = images
    for number, operation in enumerate(OPERATIONS):
        changed = torch.where((chosen == number)[:, None, None, None], operation(images, strengths), changed)
    return changed.permute(0, 2, 3, 1).contiguous()
