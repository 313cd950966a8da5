"""How a trained model goes over whole images: the geometry it was trained with decides."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.catalogue.data_sets import dataset_info, dataset_names
from drivetrain.data.preprocess import channels_last_view, normalise_dense
from drivetrain.data.source import DataSpec
from drivetrain.inference.model.exported_tiles import GraphScaled, GraphTiles
from drivetrain.inference.model.tiles import (
    DEFAULT_OVERLAP,
    FlipAveraged,
    ResizedForward,
    ScaledForward,
    TiledForward,
)
from drivetrain.passes.forward import Forward
from drivetrain.recipe.schema import Recipe

__all__ = ["image_logits", "size_before_scaling", "whole_image_forward", "whole_image_graph"]

_PIXELS_AT_A_TIME = 2 * 1024 * 1024


def size_before_scaling(recipe: Recipe, spec: DataSpec) -> tuple[int, int] | None:
    """Height and width of all training images, where `--image-size` scaled them by one and the same factors.

    None where each of many sizes had factors of its own, and where nothing was scaled.
    """
    if spec.tile is not None or recipe.image_size is None:
        return None
    size = (spec.height, spec.width)
    # Of many sizes, the specification holds the one they were scaled to.
    is_known = size != (recipe.image_size,) * 2 or _has_one_size(recipe.dataset)
    return size if is_known else None


def _has_one_size(dataset: str) -> bool:
    return dataset in dataset_names() and dataset_info(dataset).height > 0


def whole_image_forward(
    recipe: Recipe,
    spec: DataSpec,
    forward: Forward,
    *,
    margin: int,
    flips: bool = False,
    overlap: float = DEFAULT_OVERLAP,
    say: Callable[[str], None] | None = None,
) -> Forward:
    """Normalised images of any size to logits of that size, by the model that `forward` runs.

    The images are to be where the model is, and it in eval mode; `margin` is how much smaller than its input
    the model's output is, on every side. `say` hears once how images are scaled.
    """
    forward = FlipAveraged(forward) if flips else forward
    batch = recipe.validation_micro_batch_size
    tiled = partial(_tiled, forward, margin=margin, overlap=overlap, batch=batch)
    if spec.tile is not None:
        return tiled((spec.tile, spec.tile), border="mirror")
    if recipe.image_size is None:
        # Whole training images have zeros around them, training tiles the mirrored image.
        return tiled((spec.height, spec.width), border="zero")
    scaled_whole = ResizedForward(forward, size=recipe.image_size, margin=margin)
    size = size_before_scaling(recipe, spec)
    if size is None:
        side = recipe.image_size
        sentence = f"images are scaled to {side}x{side} as a whole, as those of the training were"
        return _announced(scaled_whole, sentence, say=say)
    tiles = tiled((recipe.image_size, recipe.image_size), border="mirror")
    others = ScaledForward(tiles, factors=(recipe.image_size / size[0], recipe.image_size / size[1]))
    return _BySize(size, own=scaled_whole, others=_announced(others, _scaling_of(others, size), say=say))


def whole_image_graph(recipe: Recipe, spec: DataSpec, forward: Forward, *, margin: int) -> Forward:
    """What `whole_image_forward` does, without flips, as a graph that can be exported for any size."""
    tiles = partial(GraphTiles, forward, margin=margin, overlap=DEFAULT_OVERLAP)
    if spec.tile is not None:
        return tiles(tile=(spec.tile, spec.tile))
    if recipe.image_size is None:
        return tiles(tile=(spec.height, spec.width), has_zeros=_always)
    side, size = recipe.image_size, size_before_scaling(recipe, spec)
    has_zeros = _always if size is None else partial(_is_size, (side, side))
    return GraphScaled(tiles(tile=(side, side), has_zeros=has_zeros), side=side, of=size)


def _always(_height: int, _width: int) -> Tensor:
    return torch.tensor(True)


def _is_size(size: tuple[int, int], height: int, width: int) -> Tensor:
    """As a tensor: a graph takes no branch by the size of an image."""
    return (torch.scalar_tensor(height) == size[0]) & (torch.scalar_tensor(width) == size[1])


def _tiled(
    forward: Forward,
    tile: tuple[int, int],
    *,
    margin: int,
    overlap: float,
    batch: int | None,
    border: Literal["mirror", "zero"],
) -> TiledForward:
    pixels = (tile[0] + 2 * margin) * (tile[1] + 2 * margin)
    return TiledForward(
        forward,
        tile=tile,
        margin=margin,
        batch=batch or max(1, _PIXELS_AT_A_TIME // pixels),
        overlap=overlap,
        border=border,
    )


@dataclass(frozen=True, slots=True)
class _BySize:
    """Images of one size go one way, all others another."""

    size: tuple[int, int]
    _: KW_ONLY
    own: Forward
    others: Forward

    def __call__(self, images: Tensor) -> Tensor:
        return (self.own if tuple(images.shape[2:]) == self.size else self.others)(images)


def _scaling_of(scaled: ScaledForward, size: tuple[int, int]) -> str | None:
    """What happens to images of other sizes than that of the training; None where nothing does."""
    down, across = scaled.factors
    if down == across == 1:
        return None
    factors = f"factor {down:.3g}" if down == across else f"factors {down:.3g} down and {across:.3g} across"
    return (
        f"images that are not {size[0]}x{size[1]}, as those of the training were, are scaled by the "
        f"training's {factors} and predicted by overlapping tiles"
    )


def _announced(forward: Forward, sentence: str | None, *, say: Callable[[str], None] | None) -> Forward:
    """The same, which says before its first image what it does."""
    if say is None or sentence is None:
        return forward
    unsaid = [sentence]

    def run(images: Tensor) -> Tensor:
        while unsaid:
            say(unsaid.pop())
        return forward(images)

    return run


@torch.inference_mode()
def image_logits(forward: Forward, image: NDArray[Any], *, spec: DataSpec, device: torch.device) -> Tensor:
    """Logits (classes, height, width) of one image (height, width, channels) as data and files hold it."""
    stored = channels_last_view(torch.from_numpy(np.array(image))[None].to(device))
    return forward(normalise_dense(stored, spec))[0]
