"""What a model saw in an image, painted over it for people to look at."""

import re
from collections.abc import Sequence
from colorsys import hls_to_rgb
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ERROR_COLOURS",
    "class_colours",
    "displayable",
    "paint_classes",
    "paint_errors",
    "tinted",
]

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
_GREEN, _PURPLE, _YELLOW, _BLUE = (0, 158, 115), (204, 121, 167), (240, 228, 66), (0, 114, 178)
_ORANGE, _SKY_BLUE, _VERMILLION = (230, 159, 0), (86, 180, 233), (213, 94, 0)
_CLASS_COLOURS: tuple[Colour, ...] = (_GREEN, _PURPLE, _YELLOW, _BLUE, _ORANGE)
_GOLDEN_RATIO = 0.618033988749895
_TINT = 0.45
_DIMMED = 0.55
_OUTLINE_PIXELS = 2
_MIDDLE_GREY = 128
_LOOKS_BLACK = 64

ERROR_COLOURS: tuple[Colour, Colour] = (_VERMILLION, _SKY_BLUE)
"""Of a pixel that is wrong, or of two classes wrongly marked; and of one that was missed."""


def class_colours(class_names: Sequence[str]) -> list[Colour | None]:
    """One colour per class, its own where it is called by one (#00ff00).

    The first class is what lies behind the others and is not painted.
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
    """An image of any channels and range as RGB; one that would look black is made brighter."""
    shown = image[..., :3] if image.shape[2] >= 3 else image[..., :1]
    low, high = float(shown.min()), float(shown.max())
    if shown.dtype != np.uint8 or low < high < _LOOKS_BLACK:
        shown = np.rint((shown - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(shown, (*shown.shape[:2], 3)))


def paint_classes(image: Pixels, classes: NDArray[Any], *, class_names: Sequence[str]) -> Pixels:
    """The image in grey with every class tinted in its colour, and outlined in just that colour.

    Over an image's own colours a tint would be another colour than the legend's.
    """
    painted = _grey(image)
    outlines = _outlines(classes)
    for index, colour in enumerate(class_colours(class_names)):
        if colour is not None:
            _tint(painted, classes == index, colour, share=_TINT)
            _tint(painted, (classes == index) & outlines, colour, share=1)
    return _rounded(painted)


def tinted(colour: Colour) -> Colour:
    """What a class of this colour looks like over a middle grey."""
    red, green, blue = (round(_MIDDLE_GREY * (1 - _TINT) + part * _TINT) for part in colour)
    return red, green, blue


def paint_errors(image: Pixels, truth: NDArray[Any], prediction: NDArray[Any], *, num_classes: int) -> Pixels:
    """The image dimmed, with the wrong pixels over it; of two classes, false ones and missed ones apart."""
    painted = _grey(image) * np.float32(_DIMMED)
    wrong = truth != prediction
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
    """The pixels that have one of another class so near above, below, left or right of them."""
    outlines = np.zeros(classes.shape, dtype=bool)
    for step in range(1, _OUTLINE_PIXELS + 1):
        below, across = classes[step:] != classes[:-step], classes[:, step:] != classes[:, :-step]
        outlines[step:] |= below
        outlines[:-step] |= below
        outlines[:, step:] |= across
        outlines[:, :-step] |= across
    return outlines


def _generated_colour(index: int) -> Colour:
    """Beyond the chosen colours: hues as far apart as can be, in turn light and dark."""
    red, green, blue = hls_to_rgb(index * _GOLDEN_RATIO % 1, 0.4 + 0.3 * (index % 2), 0.8)
    return round(red * 255), round(green * 255), round(blue * 255)
