"""RandAugment: applies a few random colour and geometric operations per image, all of one magnitude."""

from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample

from drivetrain.data.augment.technique import draw_per_sample
from drivetrain.data.preprocess import channels_last_view, sum_per_image

_WHITE = 255.0
_LEVELS = 256
_BLEND_RANGE = 0.9
_MOST_BITS_DROPPED = 4
_LUMINANCE = (0.299, 0.587, 0.114)
_MID_GREY = 128.0
_LARGEST_ANGLE = pi / 6
_LARGEST_SHEAR = 0.3
_LARGEST_SHIFT = 0.45
_STRONGEST = 10


def brightness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Scales the brightness up or down."""
    return (pixels * _factor(strength)).clamp_(0, _WHITE)


def contrast(pixels: Tensor, strength: Tensor) -> Tensor:
    """Moves pixels away from the image's mean grey or towards it."""
    grey = _grey(pixels)
    mean = sum_per_image(grey) / grey[0].numel()
    return _blend(mean[:, None, None, None], pixels, strength)


def saturation(pixels: Tensor, strength: Tensor) -> Tensor:
    """Moves pixels away from the greyscale image or towards it."""
    return _blend(_grey(pixels), pixels, strength)


def sharpness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Moves pixels away from a smoothed image or towards it; the outermost pixels stay."""
    if min(pixels.shape[2:]) < 3:
        return pixels
    columns = pixels[..., :-2, :] + pixels[..., 1:-1, :] + pixels[..., 2:, :]
    boxes = columns[..., :-2] + columns[..., 1:-1] + columns[..., 2:]
    smooth = pixels.clone()
    smooth[..., 1:-1, 1:-1] = (boxes + 4 * pixels[..., 1:-1, 1:-1]) / 13
    return _blend(smooth, pixels, strength)


def posterise(pixels: Tensor, strength: Tensor) -> Tensor:
    """Drops up to four low bits of every value."""
    dropped = (strength.abs() * _MOST_BITS_DROPPED).round().to(torch.int64)
    step = torch.bitwise_left_shift(1, dropped).to(torch.float32)[:, None, None, None]
    return (pixels / step).floor_() * step


def solarise(pixels: Tensor, strength: Tensor) -> Tensor:
    """Inverts all values from a threshold on."""
    threshold = _LEVELS * (1 - strength.abs())[:, None, None, None]
    return torch.where(pixels >= threshold, _WHITE - pixels, pixels)


def autocontrast(pixels: Tensor, _strength: Tensor) -> Tensor:
    """Stretches every channel to the full range; a channel of one value stays."""
    darkest, brightest = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    span = brightest - darkest
    stretched = ((pixels - darkest) * (_WHITE / torch.where(span > 0, span, 1))).clamp_(max=_WHITE)
    return torch.where(span > 0, stretched, pixels)


def _factor(strength: Tensor) -> Tensor:
    return (1 + _BLEND_RANGE * strength)[:, None, None, None]


def _blend(origin: Tensor, pixels: Tensor, strength: Tensor) -> Tensor:
    return (origin + (pixels - origin) * _factor(strength)).clamp_(0, _WHITE)


def _grey(pixels: Tensor) -> Tensor:
    """One channel of luminance; unless there are three channels, all have the same weight."""
    channels = pixels.unbind(1)
    count = len(channels)
    weights = _LUMINANCE if count == len(_LUMINANCE) else (1 / count,) * count
    grey = channels[0] * weights[0]
    for channel, weight in zip(channels[1:], weights[1:], strict=True):
        grey = grey + channel * weight
    return grey[:, None]


def equalise(pixels: Tensor, _strength: Tensor) -> Tensor:
    """Spreads each channel's values so that all levels are about equally frequent."""
    samples, channels, height, width = pixels.shape
    levels = pixels.round().clamp_(0, _LEVELS - 1).to(torch.int64).reshape(samples * channels, height * width)
    counts = torch.zeros(len(levels), _LEVELS, dtype=torch.int64, device=pixels.device)
    counts.scatter_add_(1, levels, torch.ones_like(levels))
    spread = _tables(counts).gather(1, levels).view(samples, channels, height, width)
    return spread.to(torch.float32, memory_format=torch.channels_last)


def _tables(counts: Tensor) -> Tensor:
    """Lookup tables from old to new levels; a channel with too few values to spread keeps its levels."""
    own = torch.arange(_LEVELS, device=counts.device)
    brightest = torch.where(counts > 0, own, 0).amax(1, keepdim=True)
    step = (counts.sum(1, keepdim=True) - counts.gather(1, brightest)) // (_LEVELS - 1)
    darker = counts.cumsum(1) - counts
    spread = (darker + step // 2) // step.clamp(min=1)
    return torch.where(step > 0, spread.clamp(max=_LEVELS - 1), own)


def rotate(pixels: Tensor, strength: Tensor) -> Tensor:
    """Rotates about the centre by up to 30 degrees."""
    # In double precision: vectorised and scalar float32 sines may differ in the last bit.
    angle = strength.to(torch.float64) * _LARGEST_ANGLE
    cosine, sine = angle.cos().to(torch.float32), angle.sin().to(torch.float32)
    return _resample(pixels, x_from_x=cosine, x_from_y=sine, y_from_x=-sine, y_from_y=cosine)


def shear_x(pixels: Tensor, strength: Tensor) -> Tensor:
    """Shears horizontally: rows slide along each other."""
    return _resample(pixels, x_from_y=strength * _LARGEST_SHEAR)


def shear_y(pixels: Tensor, strength: Tensor) -> Tensor:
    """Shears vertically: columns slide along each other."""
    return _resample(pixels, y_from_x=strength * _LARGEST_SHEAR)


def translate_x(pixels: Tensor, strength: Tensor) -> Tensor:
    """Shifts left or right by up to 45 % of the width."""
    return _resample(pixels, shift_x=strength * (_LARGEST_SHIFT * pixels.shape[3]))


def translate_y(pixels: Tensor, strength: Tensor) -> Tensor:
    """Shifts up or down by up to 45 % of the height."""
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
    """Resamples bilinearly through an affine map about the centre; outside the image, pixels are mid-grey."""
    # grid_sample can only fill with 0, so mid-grey is subtracted before and added after.
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


def _identity(pixels: Tensor, _strength: Tensor) -> Tensor:
    return pixels


# Each takes float32 pixels from 0 to 255 and one strength from -1 to 1 per image. The order matters: draws
# are positions in this tuple, so another order would change the augmentation of every seed.
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
    """Applies `operations` random operations in turn; `magnitude` is 0 to 10, its sign is random."""

    operations: int
    magnitude: float

    @property
    def columns(self) -> int:
        return 2 * self.operations

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws, for each turn, the position of an operation in OPERATIONS and its signed strength."""
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
        """Returns the augmented images as float32, channels last."""
        apply_turn = apply_in_groups if images.device.type == "cpu" else apply_everywhere
        pixels = images.to(torch.float32).permute(0, 2, 3, 1).contiguous()
        for turn in range(self.operations):
            pixels = apply_turn(pixels, draws[:, 2 * turn].to(torch.int64), draws[:, 2 * turn + 1])
        return channels_last_view(pixels)


def apply_in_groups(pixels: Tensor, chosen: Tensor, strengths: Tensor) -> Tensor:
    """Runs each operation on the images that drew it; pixels are (samples, height, width, channels)."""
    changed = torch.empty_like(pixels)
    for number in sorted(set(chosen.tolist())):
        here = (chosen == number).nonzero().view(-1)
        group = channels_last_view(pixels.index_select(0, here))
        result = OPERATIONS[number](group, strengths.index_select(0, here))
        changed.index_copy_(0, here, result.permute(0, 2, 3, 1))
    return changed


def apply_everywhere(pixels: Tensor, chosen: Tensor, strengths: Tensor) -> Tensor:
    """Same result as `apply_in_groups`, without a device synchronization."""
    # Grouping needs the drawn operations on the host. Running all operations on all images does not.
    images = channels_last_view(pixels)
    changed = images
    for number, operation in enumerate(OPERATIONS):
        changed = torch.where((chosen == number)[:, None, None, None], operation(images, strengths), changed)
    return changed.permute(0, 2, 3, 1).contiguous()
