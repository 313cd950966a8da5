"""Draws predicted masks over images, beside the true masks and the errors if the truth is known."""

import re
from collections.abc import Sequence
from colorsys import hls_to_rgb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.catalogue.metrics import foreground_first
from drivetrain.pictures.picture_sheet import LegendEntry, Panel, sheet_png
from drivetrain.tasks.segmentation_evaluation import foreground_dice

__all__ = [
    "ERROR_COLOURS",
    "class_colours",
    "displayable",
    "overlay_sheet",
    "paint_classes",
    "paint_errors",
    "panel_size",
    "scaled_classes",
    "scaled_pixels",
    "tinted",
]

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]
# The palette of Okabe and Ito, whose colours can be distinguished with any kind of colour vision.
_GREEN, _PURPLE, _YELLOW, _BLUE = (0, 158, 115), (204, 121, 167), (240, 228, 66), (0, 114, 178)
_ORANGE, _SKY_BLUE, _VERMILLION = (230, 159, 0), (86, 180, 233), (213, 94, 0)
_CLASS_COLOURS: tuple[Colour, ...] = (_GREEN, _PURPLE, _YELLOW, _BLUE, _ORANGE)
# Multiples of the golden ratio spread hues evenly, however many there are.
_GOLDEN_RATIO = 0.618033988749895
_TINT = 0.45
_DIMMED = 0.55
_OUTLINE_PIXELS = 2
_MIDDLE_GREY = 128
# An image whose brightest value is below this, out of 255, is stretched to the full range.
_LOOKS_BLACK = 64
ERROR_COLOURS: tuple[Colour, Colour] = (_VERMILLION, _SKY_BLUE)
"""For wrong pixels (with two classes: false positives), and with two classes for missed pixels."""
_LEAST_SIDE, _MOST_SIDE = 320, 1024


def class_colours(class_names: Sequence[str]) -> list[Colour | None]:
    """One colour per class; a class that is named by a colour, such as #00ff00, gets that colour.

    The first class is the background, which is not painted (None).
    """
    others = len(class_names) - 1
    more = [_generated_colour(index) for index in range(len(_CLASS_COLOURS), others)]
    usual = [*_CLASS_COLOURS[:others], *more]
    return [
        None,
        *(_named_colour(name) or colour for name, colour in zip(class_names[1:], usual, strict=True)),
    ]


def _named_colour(name: str) -> Colour | None:
    if not re.fullmatch("#[0-9a-f]{6}", name):
        return None
    red, green, blue = bytes.fromhex(name[1:])
    return red, green, blue


def displayable(image: NDArray[Any]) -> Pixels:
    """An image with any channels and range as 8-bit RGB; a very dark image is made brighter."""
    shown = image[..., :3] if image.shape[2] >= 3 else image[..., :1]
    low, high = float(shown.min()), float(shown.max())
    if shown.dtype != np.uint8 or low < high < _LOOKS_BLACK:
        shown = np.rint((shown - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(shown, (*shown.shape[:2], 3)))


def paint_classes(image: Pixels, classes: NDArray[Any], *, class_names: Sequence[str]) -> Pixels:
    """The image in grey, with every class tinted and outlined in its colour.

    The image is grey because a tint over coloured pixels would not match the legend.
    """
    painted = _grey(image)
    outlines = _outlines(classes)
    for index, colour in enumerate(class_colours(class_names)):
        if colour is not None:
            _tint(painted, classes == index, colour, share=_TINT)
            _tint(painted, (classes == index) & outlines, colour, share=1)
    return _rounded(painted)


def tinted(colour: Colour) -> Colour:
    """The colour of a tinted class over middle grey, for the legend."""
    red, green, blue = (round(_MIDDLE_GREY * (1 - _TINT) + part * _TINT) for part in colour)
    return red, green, blue


def paint_errors(image: Pixels, truth: NDArray[Any], prediction: NDArray[Any], *, num_classes: int) -> Pixels:
    """The dimmed image with wrong pixels marked; with two classes, false positives and misses differ.

    Pixels whose truth is no class are ignored.
    """
    painted = _grey(image) * np.float32(_DIMMED)
    wrong = (truth != prediction) & (truth < num_classes)
    missed = wrong & (truth == 1) if num_classes == 2 else np.zeros_like(wrong)
    _tint(painted, wrong & ~missed, ERROR_COLOURS[0], share=0.9)
    _tint(painted, missed, ERROR_COLOURS[1], share=0.9)
    return _rounded(painted)


def _grey(image: Pixels) -> NDArray[np.float32]:
    grey: NDArray[np.float32] = image.mean(axis=2, keepdims=True, dtype=np.float32)
    return np.repeat(grey, 3, axis=2)


def _rounded(painted: NDArray[np.float32]) -> Pixels:
    pixels: Pixels = np.rint(painted).astype(np.uint8)
    return pixels


def _tint(
    painted: NDArray[np.float32], where: NDArray[np.bool_], colour: Sequence[int], *, share: float
) -> None:
    painted[where] = painted[where] * (1 - share) + np.array(colour, dtype=np.float32) * share


def _outlines(classes: NDArray[Any]) -> NDArray[np.bool_]:
    """The pixels with another class within `_OUTLINE_PIXELS` above, below, left or right of them."""
    outlines = np.zeros(classes.shape, dtype=bool)
    for step in range(1, _OUTLINE_PIXELS + 1):
        below, across = classes[step:] != classes[:-step], classes[:, step:] != classes[:, :-step]
        outlines[step:] |= below
        outlines[:-step] |= below
        outlines[:, step:] |= across
        outlines[:, :-step] |= across
    return outlines


def _generated_colour(index: int) -> Colour:
    """A colour for classes beyond the palette: well separated hues, alternately light and dark."""
    red, green, blue = hls_to_rgb(index * _GOLDEN_RATIO % 1, 0.4 + 0.3 * (index % 2), 0.8)
    return round(red * 255), round(green * 255), round(blue * 255)


def overlay_sheet(
    images: Sequence[NDArray[Any]],
    truths: Sequence[NDArray[Any] | None],
    predictions: Sequence[NDArray[Any]],
    *,
    names: Sequence[str],
    class_names: Sequence[str],
    title: str = "",
    sides: tuple[int, int] = (_LEAST_SIDE, _MOST_SIDE),
) -> bytes:
    """One row per image (image, truth, prediction, errors) as a PNG file; masks contain a class per pixel.

    An image is scaled to the size of its masks. The long side of each panel is scaled into the range `sides`
    (shortest, longest).
    """
    rows = [
        _row(image, truth, prediction, name=name, class_names=class_names, sides=sides)
        for image, truth, prediction, name in zip(images, truths, predictions, names, strict=True)
    ]
    has_truth = any(truth is not None for truth in truths)
    return sheet_png(rows, legend=_legend(class_names, has_truth=has_truth), title=title)


def _row(
    image: NDArray[Any],
    truth: NDArray[Any] | None,
    prediction: NDArray[Any],
    *,
    name: str,
    class_names: Sequence[str],
    sides: tuple[int, int],
) -> list[Panel]:
    size = panel_size(prediction.shape[0], prediction.shape[1], sides)
    shown, seen = scaled_pixels(displayable(image), size), scaled_classes(prediction, size)
    plain = Panel(pixels=shown, caption=name)
    painted = paint_classes(shown, seen, class_names=class_names)
    if truth is None:
        return [plain, Panel(pixels=painted, caption="prediction")]
    there = scaled_classes(truth, size)
    dice = foreground_dice(truth, prediction, class_names=class_names)
    is_counted = truth < len(class_names)
    errors = float((truth != prediction)[is_counted].mean()) if is_counted.any() else 0.0
    return [
        plain,
        Panel(pixels=paint_classes(shown, there, class_names=class_names), caption="truth"),
        Panel(pixels=painted, caption=f"prediction: {_in_words(dice, class_names)}"),
        Panel(
            pixels=paint_errors(shown, there, seen, num_classes=len(class_names)),
            caption=f"errors: {errors:.1%} of the pixels",
        ),
    ]


def _in_words(dice: float | None, class_names: Sequence[str]) -> str:
    """The hard Dice of the foreground class, or the mean over several, as text."""
    foreground = [class_names[index] for index in foreground_first(class_names)[:-1]]
    what = foreground[0] if len(foreground) == 1 else "the foreground"
    return f"correctly no {what}" if dice is None else f"hard Dice of {what} {dice:.3f}"


def _legend(class_names: Sequence[str], *, has_truth: bool) -> list[LegendEntry]:
    colours = zip(class_names, class_colours(class_names), strict=True)
    classes = [
        LegendEntry(colour=colour, meaning=name, inside=None if colour is None else tinted(colour))
        for name, colour in colours
    ]
    if not has_truth:
        return classes
    if len(class_names) != 2:
        return [*classes, LegendEntry(colour=ERROR_COLOURS[0], meaning="wrong class")]
    return [
        *classes,
        LegendEntry(colour=ERROR_COLOURS[0], meaning=f"{class_names[1]} only in the prediction"),
        LegendEntry(colour=ERROR_COLOURS[1], meaning=f"{class_names[1]} only in the truth"),
    ]


def panel_size(height: int, width: int, sides: tuple[int, int]) -> tuple[int, int]:
    """The size of an image whose long side is scaled into the range `sides` (shortest, longest)."""
    factor = min(max(max(height, width), sides[0]), sides[1]) / max(height, width)
    return max(1, round(height * factor)), max(1, round(width * factor))


def scaled_pixels(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Scales an image: averages when shrinking, keeps sharp pixels when it grows twofold or more."""
    growth = max(size) / max(image.shape[:2])
    kinds = Image.Resampling
    kind = kinds.BOX if growth < 1 else kinds.NEAREST if growth >= 2 else kinds.BILINEAR
    return np.asarray(Image.fromarray(image).resize(size[::-1], kind))


def scaled_classes(classes: NDArray[Any], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Scales a mask with a class per pixel."""
    nearest = Image.fromarray(classes.astype(np.uint8)).resize(size[::-1], Image.Resampling.NEAREST)
    return np.asarray(nearest)
