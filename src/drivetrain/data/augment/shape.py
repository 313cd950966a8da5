"""Rotation, shear and translation of batches of float32 pixels, one strength from -1 to 1 per image."""

from math import pi

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

_MID_GREY = 128.0
_LARGEST_ANGLE = pi / 6
_LARGEST_SHEAR = 0.3
_LARGEST_SHIFT = 0.45


def rotate(pixels: Tensor, strength: Tensor) -> Tensor:
    """About the centre, up to 30 degrees."""
    # In double precision: vectorised and scalar float32 sines may differ in the last bit.
    angle = strength.to(torch.float64) * _LARGEST_ANGLE
    cosine, sine = angle.cos().to(torch.float32), angle.sin().to(torch.float32)
    return _resample(pixels, x_from_x=cosine, x_from_y=sine, y_from_x=-sine, y_from_y=cosine)


def shear_x(pixels: Tensor, strength: Tensor) -> Tensor:
    """Rows slide along each other."""
    return _resample(pixels, x_from_y=strength * _LARGEST_SHEAR)


def shear_y(pixels: Tensor, strength: Tensor) -> Tensor:
    """Columns slide along each other."""
    return _resample(pixels, y_from_x=strength * _LARGEST_SHEAR)


def translate_x(pixels: Tensor, strength: Tensor) -> Tensor:
    """Sideways, up to 45 % of the width."""
    return _resample(pixels, shift_x=strength * (_LARGEST_SHIFT * pixels.shape[3]))


def translate_y(pixels: Tensor, strength: Tensor) -> Tensor:
    """Up or down, by up to 45 % of the height."""
    return _resample(pixels, shift_y=strength * (_LARGEST_SHIFT * pixels.shape[2]))


def _resample(
    pixels: Tensor,
    *,
    x_from_x: Tensor | float = 1.0,
    x_from_y: Tensor | float = 0.0,
    y_from_x: Tensor | float = 0.0,
    y_from_y: Tensor | float = 1.0,
    shift_x: Tensor | float = 0.0,
    shift_y: Tensor | float = 0.0,
) -> Tensor:
    """Every pixel from where a linear map about the centre says, bilinear; grey from outside the image."""
    samples, _, height, width = pixels.shape
    x = _offsets_from_centre(width, pixels)[None, None, :]
    y = _offsets_from_centre(height, pixels)[None, :, None]
    from_x = _per_image(x_from_x) * x + _per_image(x_from_y) * y + _per_image(shift_x)
    from_y = _per_image(y_from_x) * x + _per_image(y_from_y) * y + _per_image(shift_y)
    shape = (samples, height, width)
    grid = torch.stack(((from_x * (2 / width)).expand(shape), (from_y * (2 / height)).expand(shape)), dim=-1)
    moved = grid_sample(pixels - _MID_GREY, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return moved.contiguous(memory_format=torch.channels_last).add_(_MID_GREY).clamp_(0, 255)


def _per_image(value: Tensor | float) -> Tensor | float:
    return value[:, None, None] if isinstance(value, Tensor) else value


def _offsets_from_centre(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, device=like.device, dtype=like.dtype) + (0.5 - length / 2)
