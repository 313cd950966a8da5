"""Chooses how a trained model runs on whole images (tiles or scaling), by the geometry of its training."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.catalogue.data_sets import dataset_info, dataset_names
from drivetrain.data.augment.from_recipe import flip_directions
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
from drivetrain.recipe.params import FlipDirection
from drivetrain.recipe.schema import Recipe

__all__ = ["flip_averaged", "image_logits", "size_before_scaling", "whole_image_forward", "whole_image_graph"]

# Limits the memory of a batch of tiles: as many tiles as have two million pixels together, but at least one.
_PIXELS_AT_A_TIME = 2 * 1024 * 1024


def size_before_scaling(recipe: Recipe, spec: DataSpec) -> tuple[int, int] | None:
    """Height and width of the training images before `--image-size` scaled them.

    None if they had different sizes, and thus different factors, or if nothing was scaled.
    """
    if spec.tile is not None or recipe.image_size is None:
        return None
    size = (spec.height, spec.width)
    # If the images had many sizes, the specification contains the size they were scaled to.
    is_known = size != (recipe.image_size,) * 2 or _has_one_size(recipe.dataset)
    return size if is_known else None


def _has_one_size(dataset: str) -> bool:
    return dataset in dataset_names() and dataset_info(dataset).height > 0


def flip_averaged(recipe: Recipe, spec: DataSpec, forward: Forward) -> FlipAveraged:
    """The mean over mirror images: in the directions of the training images, or else in the usual ones."""
    usual: tuple[FlipDirection, ...] = (
        ("horizontal", "vertical") if spec.has_dense_labels else ("horizontal",)
    )
    directions = flip_directions(recipe, auto=()) or usual
    return FlipAveraged(forward, directions, has_pixels=spec.has_dense_labels)


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
    """A function from normalised images of any size to logits of that size.

    `forward` runs the model, which must be in evaluation mode and on the device of the images. `margin` is
    the number of pixels by which the output of the model is smaller than its input, on each side. `say` is
    called once with a sentence on how images are scaled.
    """
    forward = flip_averaged(recipe, spec, forward) if flips else forward
    batch = recipe.validation_micro_batch_size
    tiled = partial(_tiled, forward, margin=margin, overlap=overlap, batch=batch)
    if spec.tile is not None:
        return tiled((spec.tile, spec.tile), border="mirror")
    if recipe.image_size is None:
        # As in training: whole images were padded with zeros, tiles were surrounded by the mirrored image.
        return tiled((spec.height, spec.width), border="zero")
    scaled_whole = ResizedForward(forward, size=recipe.image_size, margin=margin)
    size = size_before_scaling(recipe, spec)
    if size is None:
        side = recipe.image_size
        sentence = f"each image is scaled to {side}x{side} as a whole, like the training images"
        return _announced(scaled_whole, sentence, say=say)
    tiles = tiled((recipe.image_size, recipe.image_size), border="mirror")
    others = ScaledForward(tiles, factors=(recipe.image_size / size[0], recipe.image_size / size[1]))
    return _BySize(size, own=scaled_whole, others=_announced(others, _scaling_of(others, size), say=say))


def whole_image_graph(recipe: Recipe, spec: DataSpec, forward: Forward, *, margin: int) -> Forward:
    """`whole_image_forward` without flips, as a graph that can be exported for any size."""
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
    """Whether an image has this size, as a tensor: an exported graph cannot branch on sizes."""
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
    """Runs `own` on images of one size, and `others` on all others."""

    size: tuple[int, int]
    _: KW_ONLY
    own: Forward
    others: Forward

    def __call__(self, images: Tensor) -> Tensor:
        return (self.own if tuple(images.shape[2:]) == self.size else self.others)(images)


def _scaling_of(scaled: ScaledForward, size: tuple[int, int]) -> str | None:
    """A sentence on how images of other sizes than the training's are scaled; None if they are not."""
    down, across = scaled.factors
    if down == across == 1:
        return None
    factors = (
        f"factor {down:.3g}" if down == across else f"factors {down:.3g} (height) and {across:.3g} (width)"
    )
    return (
        f"images of other sizes than {size[0]}x{size[1]}, the size of the training images, are scaled by the "
        f"training's {factors} and predicted in overlapping tiles"
    )


def _announced(forward: Forward, sentence: str | None, *, say: Callable[[str], None] | None) -> Forward:
    """The same function, which calls `say` with the sentence before its first image."""
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
    """Logits (classes, height, width) of one stored image (height, width, channels)."""
    stored = channels_last_view(torch.from_numpy(np.array(image))[None].to(device))
    return forward(normalise_dense(stored, spec))[0]
