"""Pictures of segmented validation images: plain, with the true mask, and with the predicted one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.metrics import shown_metric
from drivetrain.pictures.encode import encode_small
from drivetrain.pictures.overlays import (
    displayable,
    paint_classes,
    panel_size,
    scaled_classes,
    scaled_pixels,
)
from drivetrain.store.directory import RunDirectory
from drivetrain.store.examples import ShownMask, write_mask_examples

__all__ = ["PredictedMask", "write_overlays"]

_SIDES = (256, 384)
# Pages hold all pictures and may have 3 MB; base64 makes them a third larger.
_MOST_BYTES = 1_200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMask:
    """An image with the true and the predicted class of every pixel."""

    name: str
    image: NDArray[Any]
    truth: NDArray[Any]
    classes: NDArray[np.uint8]


def write_overlays(
    directory: RunDirectory,
    examples: Iterable[tuple[PredictedMask, Mapping[str, float]]],
    *,
    class_names: Sequence[str],
) -> None:
    """Writes examples/ from images and their scores, in their order, the last ones only if bytes are left."""
    masks: list[ShownMask] = []
    pictures: dict[str, bytes] = {}
    for number, (example, scores) in enumerate(examples):
        own = _pictures(example, number, class_names=class_names)
        if sum(map(len, [*pictures.values(), *own.values()])) > _MOST_BYTES:
            break
        image, truth, predicted = own
        pictures |= own
        words = {shown_metric(name): round(value, 6) for name, value in scores.items()}
        masks.append(
            ShownMask(name=example.name, image=image, truth=truth, predicted=predicted, scores=words)
        )
    write_mask_examples(directory.examples, masks=masks, pictures=pictures)


def _pictures(example: PredictedMask, number: int, *, class_names: Sequence[str]) -> dict[str, bytes]:
    """The plain image, then the ones with the true and the predicted mask, all of one size."""
    height, width = example.classes.shape
    size = panel_size(height, width, _SIDES)
    plain = scaled_pixels(displayable(example.image), size)
    layers = {"image": plain} | {
        what: paint_classes(plain, scaled_classes(classes, size), class_names=class_names)
        for what, classes in (("truth", example.truth), ("predicted", example.classes))
    }
    encoded = {what: encode_small(pixels) for what, pixels in layers.items()}
    return {f"{number:03}-{what}{ending}": content for what, (ending, content) in encoded.items()}
