"""Colour operations on batches of float32 pixels from 0 to 255, one strength from -1 to 1 per image."""

import torch
from torch import Tensor

from drivetrain.data.reduction import sum_per_image

_WHITE = 255.0
_LEVELS = 256
_BLEND_RANGE = 0.9
_MOST_BITS_DROPPED = 4
_LUMINANCE = (0.299, 0.587, 0.114)


def brightness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from black or towards it."""
    return (pixels * _factor(strength)).clamp_(0, _WHITE)


def contrast(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the image's mean grey or towards it."""
    grey = _grey(pixels)
    mean = sum_per_image(grey) / grey[0].numel()
    return _blend(mean[:, None, None, None], pixels, strength)


def saturation(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the grey picture or towards it."""
    return _blend(_grey(pixels), pixels, strength)


def sharpness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from a smoothed picture or towards it; the outermost pixels stay."""
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
    """Inverts everything above a threshold."""
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
    """One channel of luminance; channels that are no colours count alike."""
    channels = pixels.unbind(1)
    count = len(channels)
    weights = _LUMINANCE if count == len(_LUMINANCE) else (1 / count,) * count
    grey = channels[0] * weights[0]
    for channel, weight in zip(channels[1:], weights[1:], strict=True):
        grey = grey + channel * weight
    return grey[:, None]
