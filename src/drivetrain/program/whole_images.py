"""How a trained model goes over whole images: the geometry it was trained with decides."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.dense_normalise import normalise_dense
from drivetrain.data.preprocess import channels_last_view
from drivetrain.data.source import DataSpec
from drivetrain.program.forward import Forward
from drivetrain.program.tiles import DEFAULT_OVERLAP, FlipAveraged, ResizedForward, TiledForward
from drivetrain.recipe.schema import Recipe

__all__ = ["image_logits", "whole_image_forward"]

_PIXELS_AT_A_TIME = 2 * 1024 * 1024


def whole_image_forward(
    recipe: Recipe,
    spec: DataSpec,
    forward: Forward,
    *,
    margin: int,
    flips: bool = False,
    overlap: float = DEFAULT_OVERLAP,
) -> Forward:
    """Normalised images of any size to logits of that size, by the model that `forward` runs.

    The images are to be where the model is, and it in eval mode; `margin` is how much smaller than its input
    the model's output is, on every side.
    """
    if flips:
        forward = FlipAveraged(forward)
    if spec.tile is None and recipe.image_size is not None:
        return ResizedForward(forward, size=recipe.image_size, margin=margin)
    tile = (spec.height, spec.width) if spec.tile is None else (spec.tile, spec.tile)
    pixels = (tile[0] + 2 * margin) * (tile[1] + 2 * margin)
    return TiledForward(
        forward,
        tile=tile,
        margin=margin,
        batch=recipe.validation_micro_batch_size or max(1, _PIXELS_AT_A_TIME // pixels),
        overlap=overlap,
        # Whole training images have zeros around them, training tiles the mirrored image.
        border="zero" if spec.tile is None else "mirror",
    )


@torch.inference_mode()
def image_logits(forward: Forward, image: NDArray[Any], *, spec: DataSpec, device: torch.device) -> Tensor:
    """Logits (classes, height, width) of one image (height, width, channels) as data and files hold it."""
    stored = channels_last_view(torch.from_numpy(np.array(image))[None].to(device))
    return forward(normalise_dense(stored, spec))[0]
