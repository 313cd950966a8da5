"""The geometry of the training decides how whole images go through its model."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.inference.model.valid_convolutions import MARGIN, random_images, valid_convolutions
from torch import Tensor
from torch.nn import functional as F

from drivetrain.data.source import DataSpec
from drivetrain.inference.model.tiles import FlipAveraged
from drivetrain.inference.model.whole_images import size_before_scaling, whole_image_forward
from drivetrain.models.from_recipe import prepare_model
from drivetrain.passes.forward import Forward
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

FOLDER = Recipe(dataset="mask-folder", image_size=8)
OTHER_SIZES = [(48, 60), (31, 90), (12, 25), (13, 24), (6, 24), (5, 7), (1, 1)]


def _spec(height: int, width: int, *, channels: int = 2, tile: int | None = None) -> DataSpec:
    return DataSpec(
        channels=channels,
        height=height,
        width=width,
        num_classes=2,
        class_names=("a", "b"),
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
        tile=tile,
    )


def _bilinear(images: Tensor, size: tuple[int, ...]) -> Tensor:
    return F.interpolate(images, size=size, mode="bilinear", align_corners=False)


def _mirrored(images: Tensor, margin: int) -> Tensor:
    padding = ((0, 0), (0, 0), (margin, margin), (margin, margin))
    return torch.from_numpy(np.pad(images.numpy(), padding, mode="symmetric"))


def _scaled_whole(model: Forward, images: Tensor, *, size: int) -> Tensor:
    """The published way: the image squeezed into the model's size, zeros around it, and back."""
    canvas = F.pad(_bilinear(images, (size, size)), (MARGIN,) * 4)
    return _bilinear(model(canvas.contiguous(memory_format=torch.channels_last)), tuple(images.shape[2:]))


def _over_the_whole(model: Forward, images: Tensor, *, scaled: tuple[int, int], margin: int) -> Tensor:
    """Without tiles: the image in the resolution of the training, mirrored around, in one pass, and back."""
    return _bilinear(model(_mirrored(_bilinear(images, scaled), margin)), tuple(images.shape[2:]))


@pytest.mark.parametrize("flips", [False, True])
def test_images_of_the_trainings_size_are_scaled_to_the_bit_as_there(flips: bool) -> None:
    model, images = valid_convolutions(classes=2), random_images(2, 2, 12, 24)
    whole = whole_image_forward(FOLDER, _spec(12, 24), model, margin=MARGIN, flips=flips)
    expected = _scaled_whole(FlipAveraged(model) if flips else model, images, size=8)
    assert torch.equal(whole(images), expected)


@pytest.mark.parametrize("size", OTHER_SIZES)
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
@pytest.mark.parametrize("flips", [False, True])
def test_images_of_another_size_keep_the_resolution_of_the_training(
    size: tuple[int, int], overlap: float, flips: bool
) -> None:
    """12x24 went into 8x8: two thirds of the height and a third of the width."""
    model, images = valid_convolutions(classes=2), random_images(2, 2, *size)
    forward = whole_image_forward(FOLDER, _spec(12, 24), model, margin=MARGIN, flips=flips, overlap=overlap)
    scaled = max(1, round(size[0] * 2 / 3)), max(1, round(size[1] / 3))
    whole = FlipAveraged(model) if flips else model
    expected = _over_the_whole(whole, images, scaled=scaled, margin=MARGIN)
    torch.testing.assert_close(forward(images), expected, rtol=0, atol=3e-6)


def test_squeezed_images_and_swapped_factors_give_something_else() -> None:
    model, images = valid_convolutions(classes=2), random_images(1, 2, 48, 60)
    found = whole_image_forward(FOLDER, _spec(12, 24), model, margin=MARGIN)(images)
    swapped = whole_image_forward(FOLDER, _spec(24, 12), model, margin=MARGIN)(images)
    for other in (swapped, _scaled_whole(model, images, size=8)):
        assert (found - other).abs().max() > 0.1


def test_a_unet_sees_a_large_image_as_if_it_took_it_at_once() -> None:
    """48 to 36 in training, so 91x80 become 68x60; all borders of tiles lie on one pooling grid."""
    options = {"model": "unet", "model_width": 1, "image_size": 36, "dataset": "mask-folder", "data_dir": "x"}
    recipe, spec = resolve_recipe(overrides=options).recipe, _spec(48, 48, channels=1)
    model = prepare_model(recipe, spec)[0].eval().requires_grad_(False)
    images = random_images(1, 1, 91, 80)
    found = whole_image_forward(recipe, spec, model, margin=92)(images)
    scaled = _mirrored(_bilinear(images, (68, 60)), 92)
    # Places that the network takes are 16 apart: 8 more columns on the right.
    columns = np.pad(np.arange(60), (92, 100), mode="symmetric")
    canvas = scaled[..., 92 : 92 + 60][..., columns]
    assert torch.equal(canvas[..., :244], scaled)
    expected = _bilinear(model(canvas)[..., :60], (91, 80))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_seams_are_blended() -> None:
    """Every tile says its own number: with an overlap, one turns into the next without a step."""

    def jump(overlap: float) -> float:
        numbers = iter(range(1000))

        def number(tiles: Tensor) -> Tensor:
            return torch.full_like(tiles[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN], 2.0 * next(numbers))

        recipe = Recipe(dataset="mask-folder", image_size=32, validation_micro_batch_size=1)
        forward = whole_image_forward(recipe, _spec(32, 48), number, margin=MARGIN, overlap=overlap)
        return float(forward(random_images(1, 2, 32, 240)).diff(dim=3).abs().max())

    assert jump(0.5) < 0.2
    assert jump(0.0) > 1


def test_images_of_many_sizes_are_scaled_whole_as_in_training() -> None:
    model, images = valid_convolutions(classes=2), random_images(1, 2, 48, 60)
    forward = whole_image_forward(FOLDER, _spec(8, 8), model, margin=MARGIN)
    assert torch.equal(forward(images), _scaled_whole(model, images, size=8))


@pytest.mark.parametrize(
    ("options", "spec", "size"),
    [
        ({"dataset": "isbi2012", "image_size": 388}, _spec(512, 512), (512, 512)),
        ({"dataset": "isbi2012", "image_size": 512}, _spec(512, 512), (512, 512)),
        ({"dataset": "synthetic-em", "image_size": 64}, _spec(64, 64), (64, 64)),
        ({"dataset": "mask-folder", "image_size": 64}, _spec(48, 64), (48, 64)),
        ({"dataset": "mask-folder", "image_size": 64}, _spec(64, 64), None),
        ({"dataset": "own.module:factory", "image_size": 64}, _spec(64, 64), None),
        ({"dataset": "mask-folder"}, _spec(48, 64), None),
        ({"dataset": "mask-folder", "tile_size": 64}, _spec(64, 64, tile=64), None),
    ],
)
def test_which_trainings_scaled_all_images_alike(
    options: dict[str, Any], spec: DataSpec, size: tuple[int, int] | None
) -> None:
    assert size_before_scaling(Recipe(**options), spec) == size


def test_it_is_said_once_that_images_are_scaled_and_tiled() -> None:
    said: list[str] = []
    model = valid_convolutions(classes=2)
    forward = whole_image_forward(FOLDER, _spec(12, 24), model, margin=MARGIN, say=said.append)
    forward(random_images(1, 2, 12, 24))
    assert said == []
    for size in ((48, 60), (30, 30)):
        forward(random_images(1, 2, *size))
    assert said == [
        "images of other sizes than 12x24, the size of the training images, are scaled by the training's "
        "factors 0.667 (height) and 0.333 (width) and predicted in overlapping tiles"
    ]


def test_it_is_said_once_that_images_of_many_sizes_are_scaled_whole() -> None:
    said: list[str] = []
    forward = whole_image_forward(
        FOLDER, _spec(8, 8), valid_convolutions(classes=2), margin=MARGIN, say=said.append
    )
    for size in ((48, 60), (30, 30)):
        forward(random_images(1, 2, *size))
    assert said == ["each image is scaled to 8x8 as a whole, like the training images"]


def test_a_factor_of_both_directions_is_said_as_one_and_none_not_at_all() -> None:
    said: list[str] = []
    generated = Recipe(dataset="synthetic-em", image_size=8)
    for recipe, side in ((FOLDER, 16), (generated, 8)):
        forward = whole_image_forward(
            recipe, _spec(side, side), valid_convolutions(classes=2), margin=MARGIN, say=said.append
        )
        forward(random_images(1, 2, 48, 60))
    assert len(said) == 1
    assert "by the training's factor 0.5 and" in said[0]
