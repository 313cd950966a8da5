"""Images beside what a model saw in them and, where it is known, what is there and where it went wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from drivetrain.catalogue.metrics import foreground_first
from drivetrain.pictures.mask_paint import (
    ERROR_COLOURS,
    class_colours,
    displayable,
    paint_classes,
    paint_errors,
    tinted,
)
from drivetrain.pictures.picture_sheet import LegendEntry, Panel, sheet_png
from drivetrain.tasks.segmentation_evaluation import foreground_dice

__all__ = ["overlay_sheet"]

_LEAST_SIDE, _MOST_SIDE = 320, 1024


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
    """One row per image (image, truth, prediction, errors) as a PNG file; masks hold a class per pixel.

    An image is scaled to the size of its masks, where that is another. The long side of a panel is brought
    into `sides`, the shortest and the longest there may be.
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
    size = _panel_size(prediction.shape[0], prediction.shape[1], sides)
    shown, seen = _scaled_pixels(displayable(image), size), _scaled_classes(prediction, size)
    plain = Panel(pixels=shown, caption=name)
    painted = paint_classes(shown, seen, class_names=class_names)
    if truth is None:
        return [plain, Panel(pixels=painted, caption="prediction")]
    there = _scaled_classes(truth, size)
    dice = foreground_dice(truth, prediction, class_names=class_names)
    errors = float((truth != prediction).mean())
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
    """The hard Dice of the one class that matters, or the mean over those that do."""
    foreground = [class_names[index] for index in foreground_first(class_names)[:-1]]
    what = foreground[0] if len(foreground) == 1 else "the foreground"
    return f"no {what}, which is right" if dice is None else f"hard Dice of {what} {dice:.3f}"


def _legend(class_names: Sequence[str], *, has_truth: bool) -> list[LegendEntry]:
    colours = zip(class_names, class_colours(class_names), strict=True)
    classes = [
        LegendEntry(colour=colour, meaning=name, inside=None if colour is None else tinted(colour))
        for name, colour in colours
    ]
    if not has_truth:
        return classes
    if len(class_names) != 2:
        return [*classes, LegendEntry(colour=ERROR_COLOURS[0], meaning="another class than the truth")]
    return [
        *classes,
        LegendEntry(colour=ERROR_COLOURS[0], meaning=f"{class_names[1]} in the prediction alone"),
        LegendEntry(colour=ERROR_COLOURS[1], meaning=f"{class_names[1]} in the truth alone"),
    ]


def _panel_size(height: int, width: int, sides: tuple[int, int]) -> tuple[int, int]:
    factor = min(max(max(height, width), sides[0]), sides[1]) / max(height, width)
    return max(1, round(height * factor)), max(1, round(width * factor))


def _scaled_pixels(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Averaged where it shrinks, in plain squares where it grows a lot."""
    growth = max(size) / max(image.shape[:2])
    kinds = Image.Resampling
    kind = kinds.BOX if growth < 1 else kinds.NEAREST if growth >= 2 else kinds.BILINEAR
    return np.asarray(Image.fromarray(image).resize(size[::-1], kind))


def _scaled_classes(classes: NDArray[Any], size: tuple[int, int]) -> NDArray[np.uint8]:
    nearest = Image.fromarray(classes.astype(np.uint8)).resize(size[::-1], Image.Resampling.NEAREST)
    return np.asarray(nearest)
