"""Images of any size through a model of one size."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.inference.model.valid_convolutions import random_images, valid_convolutions
from torch import Tensor, nn
from torch.nn import functional as F

from drivetrain.data.source import DataSpec
from drivetrain.inference.model.tiles import (
    FlipAveraged,
    ResizedForward,
    ScaledForward,
    TileAxis,
    TiledForward,
)
from drivetrain.inference.model.whole_images import whole_image_forward
from drivetrain.recipe.schema import Recipe

SIZES = [(16, 16), (17, 16), (16, 40), (33, 61), (50, 19), (7, 40), (5, 9), (1, 1), (2, 100)]


def _mirrored(images: Tensor, margin: int) -> Tensor:
    padding = ((0, 0), (0, 0), (margin, margin), (margin, margin))
    return torch.from_numpy(np.pad(images.numpy(), padding, mode="symmetric"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
def test_the_identity_comes_back(size: tuple[int, int], overlap: float) -> None:
    images = random_images(2, 2, *size)
    tiled = TiledForward(lambda x: x, tile=16, margin=0, overlap=overlap, batch=3)
    torch.testing.assert_close(tiled(images), images, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tile", [16, (16, 11)])
def test_tiles_of_a_valid_model_leave_no_seam(size: tuple[int, int], tile: int | tuple[int, int]) -> None:
    model, images = valid_convolutions(classes=3), random_images(2, 2, *size)
    tiled = TiledForward(model, tile=tile, margin=2, batch=4)
    torch.testing.assert_close(tiled(images), model(_mirrored(images, 2)), rtol=0, atol=2e-6)


class _Pooling(nn.Module):
    """A small U-Net of valid convolutions: the output is 3 pixels smaller than the input on every side."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.above, self.below = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        skip = self.above(images)
        raised = F.interpolate(self.below(F.max_pool2d(skip, 2)), scale_factor=2.0, mode="nearest")
        result: Tensor = raised + skip[:, :, 2:-2, 2:-2]
        return result


@pytest.mark.parametrize("size", SIZES[:5])
def test_a_model_that_halves_its_images_sees_every_tile_alike(size: tuple[int, int]) -> None:
    model, images = _Pooling().requires_grad_(False), random_images(1, 2, *size)
    tiled = TiledForward(model, tile=16, margin=3, batch=4)
    padding = ((0, 0), (0, 0), (3, 3 + size[0] % 2), (3, 3 + size[1] % 2))
    whole = model(torch.from_numpy(np.pad(images.numpy(), padding, mode="symmetric")))
    expected = whole[:, :, : size[0], : size[1]]
    torch.testing.assert_close(tiled(images), expected, rtol=0, atol=2e-6)


def test_without_a_margin_seams_show() -> None:
    model, images = valid_convolutions(classes=3), random_images(1, 2, 33, 61)

    def padded(x: Tensor) -> Tensor:
        result: Tensor = model(F.pad(x, (2, 2, 2, 2)))
        return result

    tiled = TiledForward(padded, tile=16, margin=0, batch=4)
    assert (tiled(images) - padded(images)).abs()[:, :, 4:-4, 4:-4].max() > 0.01


def test_one_tile_is_the_model_itself() -> None:
    model, images = valid_convolutions(classes=3), random_images(3, 2, 20, 20)
    whole = model(images)
    assert torch.equal(TiledForward(model, tile=20, margin=0, batch=8)(images), whole)
    with_border = model(_mirrored(images, 2).contiguous(memory_format=torch.channels_last))
    assert torch.equal(TiledForward(model, tile=20, margin=2, batch=8)(images), with_border)
    with_zeros = TiledForward(model, tile=20, margin=2, batch=8, border="zero")
    assert torch.equal(with_zeros(images), model(F.pad(images, (2, 2, 2, 2))))


def test_tiles_go_through_in_batches_and_the_batch_changes_nothing() -> None:
    seen: list[torch.Size] = []

    def forward(x: Tensor) -> Tensor:
        seen.append(x.shape)
        return x[:, :1, 1:-1, 1:-1].to(torch.bfloat16)

    images = random_images(2, 2, 40, 40)
    results = [TiledForward(forward, tile=16, margin=1, batch=batch)(images) for batch in (1, 5, 100)]
    tiles = 2 * len(TileAxis(length=40, side=16, overlap=0.25).starts) ** 2
    assert {shape[0] for shape in seen[:tiles]} == {1}
    assert {shape[0] for shape in seen[tiles:-2]} == {5}
    assert seen[-1][0] == tiles
    assert all(shape[1:] == (2, 18, 18) for shape in seen)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert results[0].dtype == torch.float32


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 100, 1001])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 0.9])
def test_weights_are_never_zero_and_add_up_to_one(length: int, overlap: float) -> None:
    axis = TileAxis(length=length, side=16, overlap=overlap)
    starts, weights = axis.starts, axis.weights()
    assert starts[0] == 0
    assert starts[-1] + 16 == axis.extent >= length
    assert axis.extent < max(length, 16) + 16
    assert all(second - first <= max(1, 16 * (1 - overlap)) for first, second in pairwise(starts))
    assert weights.min() > 0
    total = np.zeros(axis.extent)
    for start, window in zip(starts, weights, strict=True):
        total[start : start + 16] += window
    np.testing.assert_allclose(total, 1, rtol=0, atol=1e-6)


def test_a_tile_counts_least_at_its_border() -> None:
    weights = TileAxis(length=64, side=32, overlap=0.5).weights()
    assert weights[1][0] < 0.01
    assert weights[1][16] > 0.99
    assert (np.diff(weights[1][:16]) > 0).all()


def test_flips_are_turned_back_and_averaged() -> None:
    images = random_images(2, 2, 9, 13)
    torch.testing.assert_close(FlipAveraged(lambda x: x)(images), images, rtol=0, atol=1e-6)

    def column_number(x: Tensor) -> Tensor:
        return torch.arange(x.shape[3], dtype=torch.float32).expand(x.shape)

    averaged = FlipAveraged(column_number)(images)
    torch.testing.assert_close(averaged, torch.full_like(averaged, 6.0), rtol=0, atol=1e-6)


def test_only_the_chosen_direction_is_averaged() -> None:
    images, model = random_images(1, 2, 12, 14), valid_convolutions(classes=3)
    across = FlipAveraged(model, ("horizontal",))
    expected = (model(images).float() + model(images.flip(3)).float().flip(3)) / 2
    assert torch.equal(across(images), expected)
    assert not torch.equal(across(images), FlipAveraged(model)(images))


def test_an_averaged_model_does_not_care_about_flips() -> None:
    averaged = FlipAveraged(valid_convolutions(classes=3))
    images = random_images(1, 2, 12, 14)
    torch.testing.assert_close(averaged(images.flip(3)), averaged(images).flip(3), rtol=0, atol=1e-6)


def test_class_logits_are_averaged_without_turning_them_back() -> None:
    images = random_images(2, 1, 3, 4)

    def corner(x: Tensor) -> Tensor:
        return x[:, 0, 0, :2]

    averaged = FlipAveraged(corner, ("horizontal",), has_pixels=False)(images)
    assert torch.equal(averaged, torch.stack([corner(images), corner(images.flip(3))]).mean(0))
    assert not torch.equal(averaged, FlipAveraged(corner, ("vertical",), has_pixels=False)(images))


def test_resizing_back_and_forth() -> None:
    shapes: list[torch.Size] = []

    def forward(x: Tensor) -> Tensor:
        shapes.append(x.shape)
        return x[:, :, 3:-3, 3:-3]

    images = random_images(2, 1, 10, 14)
    resized = ResizedForward(forward, size=8, margin=3)(images)
    assert shapes == [(2, 1, 14, 14)]
    there = F.interpolate(images, size=(8, 8), mode="bilinear", align_corners=False)
    back = F.interpolate(there, size=(10, 14), mode="bilinear", align_corners=False)
    assert torch.equal(resized, back)
    same = random_images(2, 1, 8, 8)
    assert torch.equal(ResizedForward(forward, size=8, margin=3)(same), same)


@pytest.mark.parametrize("size", [(10, 14), (1, 1), (9, 3)])
def test_scaling_by_factors_back_and_forth(size: tuple[int, int]) -> None:
    images, shapes = random_images(2, 1, *size), []

    def forward(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape[2:]))
        return x

    scaled = ScaledForward(forward, factors=(0.5, 1.5))(images)
    assert shapes == [(max(1, round(size[0] / 2)), round(size[1] * 1.5))]
    there = F.interpolate(images, size=shapes[0], mode="bilinear", align_corners=False)
    assert torch.equal(scaled, F.interpolate(there, size=size, mode="bilinear", align_corners=False))


def _spec(*, height: int, width: int, tile: int | None = None) -> DataSpec:
    return DataSpec(
        channels=2,
        height=height,
        width=width,
        num_classes=3,
        class_names=("a", "b", "c"),
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
        tile=tile,
    )


def test_the_geometry_of_the_training_decides() -> None:
    model, images = valid_convolutions(classes=3), random_images(1, 2, 12, 20)
    whole = whole_image_forward(Recipe(), _spec(height=12, width=20), model, margin=2)
    assert torch.equal(whole(images), model(F.pad(images, (2, 2, 2, 2))))
    tiled = whole_image_forward(Recipe(), _spec(height=12, width=12, tile=8), model, margin=2)
    torch.testing.assert_close(tiled(images), model(_mirrored(images, 2)), rtol=0, atol=2e-6)
    fixed = whole_image_forward(Recipe(image_size=6), _spec(height=12, width=20), model, margin=2)
    assert torch.equal(fixed(images), ResizedForward(model, size=6, margin=2)(images))
    flipped = whole_image_forward(
        Recipe(image_size=6), _spec(height=12, width=20), model, margin=2, flips=True
    )
    assert torch.equal(flipped(images), ResizedForward(FlipAveraged(model), size=6, margin=2)(images))
    assert not torch.equal(flipped(images), fixed(images))
