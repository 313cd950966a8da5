"""The sizes at which images may be trained on: whole, scaled, or as tiles."""

from dataclasses import dataclass
from typing import Any

from drivetrain.auto.case import Case
from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import is_external_model, model_info, nearest_image_size

__all__ = ["Size", "is_tiny", "sizes_for"]

# Images of at most this side go to networks that keep their resolution; ResNets for photographs shrink an
# image 32 times.
TINY_SIDE_PX = 48
_SIDES_PX = (224, 192, 160, 128, 96, 64)
_SMALL_SIDES_PX = (48, 32)
_TILE_SIDES_PX = (512, 384, 256, 192, 128, 64)
_MOST_TILE_SIDES = 3
# Larger images are trained on tiles.
_LARGEST_WHOLE_PX = 512
# The number of times that usual segmentation models halve an image is five.
_EXTERNAL_STEP_PX = 32
# The input for which most classifiers are written, and the only one of many vision transformers.
_USUAL_SIDE_PX = 224


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size of training images as options of the recipe (none: as they are), and why it is a candidate.

    `height_and_width` is set for whole images that are not square.
    """

    options: dict[str, Any]
    side_px: int
    reason: str
    height_and_width: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.height_and_width is None:
            return f"{self.side_px} pixels"
        return f"{self.height_and_width[0]}x{self.height_and_width[1]} pixels"


def is_tiny(case: Case) -> bool:
    """Whether the images are as small as those of CIFAR."""
    return case.shorter_side_px <= TINY_SIDE_PX


def sizes_for(case: Case) -> list[Size]:
    """The sizes among which the time decides, largest first; a typed one leaves no choice."""
    for field in ("image_size", "tile_size"):
        if case.is_typed(field):
            return [Size(options={}, side_px=int(case.value(field) or case.shorter_side_px), reason="")]
    return _dense_sizes(case) if case.is_dense else _classified_sizes(case)


def _classified_sizes(case: Case) -> list[Size]:
    model = str(case.value("model")) if case.is_typed("model") else None
    if model is not None and is_library_model(model):
        return [Size(options={}, side_px=_USUAL_SIDE_PX, reason="")]
    if is_tiny(case):
        return [_tiny_size(case, model)]
    if model is not None and is_external_model(model):
        return [_scaled(_USUAL_SIDE_PX, "the usual input of classifiers; a model of yours may need another")]
    shorter = case.shorter_side_px
    own = [side for side in _sides_of(model) if side <= shorter]
    if not own:
        smallest = min(side for side in _SIDES_PX if side > TINY_SIDE_PX)
        return [_scaled(smallest, f"the smallest size for photographs; the images have {shorter} pixels")]
    reason = f"no larger than the shorter side of the images, {shorter} pixels, and what the time allows"
    sides = own if model is None else dict.fromkeys(nearest_image_size(model, side) for side in own)
    return [_scaled(side, reason) for side in sides]


def _sides_of(model: str | None) -> tuple[int, ...]:
    """The candidates for photographs; a model for small images gets at most twice the size it is made for."""
    if model is None or model_info(model).image_size >= _USUAL_SIDE_PX:
        return _SIDES_PX
    largest = max(_SMALL_SIDES_PX[-1], 2 * model_info(model).image_size)
    return tuple(side for side in (*_SIDES_PX, *_SMALL_SIDES_PX) if side <= largest)


def _tiny_size(case: Case, model: str | None) -> Size:
    """Small images as they are, if all are equally large squares; otherwise about their shorter side."""
    size, shorter = case.one_size_px, case.shorter_side_px
    fits = model is None or nearest_image_size(model, shorter) == shorter
    if size is not None and size[0] == size[1] and fits:
        return Size(options={}, side_px=shorter, reason="")
    side = max(8, shorter // 8 * 8)
    side = side if model is None else nearest_image_size(model, side)
    return _scaled(side, f"one square size for all images, near their shorter side of {shorter} pixels")


def _dense_sizes(case: Case) -> list[Size]:
    """The whole image where all have one size that fits, otherwise tiles."""
    size = case.one_size_px
    if size is not None and max(size) <= _LARGEST_WHOLE_PX and _takes_whole(case, size):
        both = None if size[0] == size[1] else size
        return [Size(options={}, side_px=case.shorter_side_px, reason="", height_and_width=both)]
    shorter = case.shorter_side_px
    fitting = [side for side in _TILE_SIDES_PX if side <= max(shorter, _TILE_SIDES_PX[-1])]
    why = (
        "images of several sizes are not scaled, as that would change their objects"
        if size is None
        else f"images of {size[0]}x{size[1]} pixels do not fit the network as a whole"
        if max(size) <= _LARGEST_WHOLE_PX
        else f"images of more than {_LARGEST_WHOLE_PX} pixels take too much memory as a whole"
    )
    reason = f"{why}; tiles of this side fit into most images"
    sides = dict.fromkeys(_fitting_tile(case, side) for side in fitting[:_MOST_TILE_SIDES])
    return [Size(options={"tile_size": side}, side_px=side, reason=reason) for side in sides]


def _takes_whole(case: Case, size: tuple[int, int]) -> bool:
    if not case.is_typed("model"):
        return True
    model = str(case.value("model"))
    if is_external_model(model):
        return not any(side % _EXTERNAL_STEP_PX for side in size)
    if not model_info(model).output_margin:
        return True
    return size[0] == size[1] and nearest_image_size(model, size[0]) == size[0]


def _fitting_tile(case: Case, side: int) -> int:
    return nearest_image_size(str(case.value("model")), side) if case.is_typed("model") else side


def _scaled(side: int, reason: str) -> Size:
    return Size(options={"image_size": side}, side_px=side, reason=reason)
