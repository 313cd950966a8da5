"""From images with masks to training samples: whole, scaled, or tiles."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.from_recipe import build_dense_augmentation
from drivetrain.data.feeds.feed import Feed, ResidentFeed, StreamFeed, make_feed
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedSplits
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import DensePreprocess, build_preparation
from drivetrain.data.segmentation_splits import as_samples
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import TileSource, UniformSource, masked_of
from drivetrain.recipe.schema import Recipe
from tests.data.dense_samples import dense_spec, stored_pairs
from tests.data.helpers import CPU, collect, make_order, same_batches
from tests.data.mask_files import classes, colour, save
from tests.data.numbered_images import Numbered


def _held(height: int = 20, width: int = 24, *, samples: int = 4) -> HeldMaskedImages:
    images, masks = stored_pairs(samples, height, width)
    return HeldMaskedImages(images=images, masks=masks, names=tuple(map(str, range(samples))))


def _splits(height: int = 20, width: int = 24, *, samples: int = 4) -> MaskedSplits:
    return MaskedSplits(
        train=_held(height, width, samples=samples),
        validation=_held(height, width, samples=2),
        test=None,
        spec=dense_spec(height, width),
        warnings=["odd files"],
    )


def _many_sizes() -> MaskedSplits:
    spec = dense_spec(40, 90, channels=2, classes=130)
    return MaskedSplits(train=Numbered(), validation=Numbered(((30, 30),)), test=None, spec=spec)


def _recipe(model: str = "unet_same", **options: Any) -> Recipe:
    return Recipe(model=model, dataset="mask-folder", **options)


def test_images_of_one_size_go_whole() -> None:
    splits = as_samples(_splits(), recipe=_recipe())
    assert isinstance(splits.train, UniformSource)
    assert isinstance(splits.validation, UniformSource)
    assert (splits.spec.height, splits.spec.width, splits.spec.tile) == (20, 24, None)
    assert splits.warnings == ["odd files"]


def test_an_image_size_leaves_scaling_of_one_size_to_the_preparation() -> None:
    splits = as_samples(_splits(), recipe=_recipe(image_size=16))
    assert (splits.spec.height, splits.spec.width) == (20, 24)
    assert splits.train.fetch(np.arange(2))[0].shape == (2, 20, 24, 1)
    scaled = as_samples(_many_sizes(), recipe=_recipe(image_size=16))
    assert (scaled.spec.height, scaled.spec.width, scaled.spec.tile) == (16, 16, None)
    assert scaled.train.fetch(np.arange(5))[0].shape == (5, 16, 16, 2)


@pytest.mark.parametrize(("model", "margin"), [("unet_same", 0), ("unet", 92), ("my.nets:make", 0)])
def test_a_tile_size_cuts_tiles_with_the_models_margin(model: str, margin: int) -> None:
    splits = as_samples(_splits(), recipe=_recipe(model, tile_size=20, seed=3))
    assert isinstance(splits.train, TileSource)
    assert (splits.train.tile, splits.train.margin, splits.train.seed) == (20, margin, 3)
    assert (splits.spec.tile, splits.spec.height) == (20, 20 + 2 * margin)
    assert splits.train.fetch(np.arange(1))[0].shape[1] == 20 + 2 * margin


@pytest.mark.parametrize(
    ("model", "longest", "tile"),
    [("unet_same", 90, 96), ("unet", 90, 100), ("unet_same", 2000, 256), ("unet", 2000, 260)],
)
def test_many_sizes_are_cut_into_tiles_and_that_is_said(model: str, longest: int, tile: int) -> None:
    """Tiles of a usual size, or hardly larger than the largest image where all are small."""
    many = replace(_many_sizes(), train=Numbered(((40, longest), (50, 60))))
    splits = as_samples(many, recipe=_recipe(model))
    assert splits.spec.tile == tile
    (warning,) = splits.warnings
    assert f"random tiles of {tile}x{tile}" in warning
    assert "--tile-size N" in warning


@pytest.mark.parametrize(
    ("size", "options", "said"),
    [
        ((20, 20), {"tile_size": 50}, "--tile-size 50 does not fit .* --model unet; --tile-size 52 works"),
        (
            (20, 24),
            {},
            "--model unet cannot process whole images of 20x24; use --tile-size 20 to train on tiles, or "
            "--image-size 20 to resize the images",
        ),
        ((30, 30), {}, "--model unet cannot process whole images of 30x30; use --tile-size 36"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(
    size: tuple[int, int], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        as_samples(_splits(*size), recipe=_recipe("unet", **options))
    as_samples(_splits(20, 20), recipe=_recipe("unet"))


def test_border_weights_are_for_training_alone() -> None:
    splits = as_samples(_splits(), recipe=_recipe(border_weight=10.0, border_sigma=2.0))
    assert splits.validation is not None
    _, masks = splits.train.fetch(np.arange(2))
    assert masks.shape == (2, 20, 24, 2)
    assert masks[..., 1].max() > 0
    assert splits.validation.fetch(np.arange(2))[1].shape == (2, 20, 24, 1)
    assert splits.warnings == _splits().warnings


def test_border_weights_without_a_border_are_said_to_be_idle() -> None:
    splits = _splits()
    one_object = np.zeros((4, 20, 24, 1), dtype=np.uint8)
    one_object[:, 3:15, 4:20] = 1
    held = replace(_held(), masks=one_object)
    warnings = as_samples(replace(splits, train=held), recipe=_recipe(border_weight=10.0)).warnings
    assert warnings == [
        *splits.warnings,
        "--border-weight 10 has no effect: no mask has two objects within 18 pixels of each other (touching "
        "objects of one class count as one object unless each has its own mask).",
    ]
    assert as_samples(replace(splits, train=held), recipe=_recipe()).warnings == splits.warnings


def _feed(splits: DataSplits, recipe: Recipe, order: SampleOrder, **options: Any) -> Feed:
    preprocess = build_preparation(recipe, splits.spec)
    assert isinstance(preprocess, DensePreprocess)
    feed, warnings = make_feed(
        splits.train,
        order=order,
        preprocess=preprocess,
        micro_batch_size=2,
        device=CPU,
        memory_budget_bytes=2**30,
        augmentation=build_dense_augmentation(recipe, splits.spec, preprocess=preprocess),
        **options,
    )
    assert warnings == []
    return feed


ALL: dict[str, Any] = {
    "augment": True,
    "rotate": 30.0,
    "elastic": 1.0,
    "gamma": 0.3,
    "noise": 0.1,
    "border_weight": 5.0,
}


@pytest.mark.parametrize(
    ("model", "options"),
    [("unet_same", {}), ("unet_same", ALL), ("unet_same", {"image_size": 16, **ALL}), ("unet", ALL)],
)
def test_resident_and_streamed_samples_are_the_same_to_the_bit(model: str, options: dict[str, Any]) -> None:
    recipe = _recipe(model, **options)
    splits = as_samples(_splits(20, 20, samples=10), recipe=recipe)
    order = make_order(10, remainder="pad")
    resident = _feed(splits, recipe, order, data_placement="resident")
    assert isinstance(resident, ResidentFeed)
    expected = collect(resident, range(4))
    margin = 92 if model == "unet" else 0
    side = options.get("image_size", 20)
    assert expected[0].images.shape == (2, 1, side + 2 * margin, side + 2 * margin)
    assert expected[0].labels.shape == (2, side, side, 2 if options else 1)
    for on_device, eight_bit in ((False, False), (True, False), (True, True)):
        streamed = _feed(
            splits,
            recipe,
            order,
            data_placement="stream",
            num_workers=0,
            accelerator_side_preprocess=on_device,
            eight_bit_transfer=eight_bit,
        )
        assert same_batches(collect(streamed, range(4)), expected)


def test_tiles_are_streamed_and_the_same_in_a_loader_worker() -> None:
    recipe = _recipe(tile_size=8, **ALL)
    splits = as_samples(_splits(samples=10), recipe=recipe)
    order = make_order(10, remainder="carry")
    feeds = [_feed(splits, recipe, order, num_workers=count) for count in (0, 1)]
    assert all(isinstance(feed, StreamFeed) for feed in feeds)
    try:
        here, there = (collect(feed, range(5)) for feed in feeds)
    finally:
        for feed in feeds:
            feed.close()
    assert same_batches(here, there)
    with pytest.raises(
        BadInputError,
        match=r"--data-placement resident .* new tiles in every epoch .*; use --data-placement stream",
    ):
        _feed(splits, recipe, order, data_placement="resident")


def test_a_folder_of_one_kind_is_held_out_and_limited_by_the_recipe(tmp_path: Path) -> None:
    for number in range(10):
        save(tmp_path / "images" / f"{number}.png", colour(16, 18, seed=number))
        save(tmp_path / "masks" / f"{number}.png", classes(3, 16, 18, seed=number))
    recipe = _recipe(data_dir=str(tmp_path), limit_train_samples=5)
    splits = open_data(recipe)
    assert splits.validation is not None
    assert (len(splits.train), len(splits.validation)) == (5, 2)
    fold = open_data(recipe.model_copy(update={"folds": 5, "fold": 4}))
    assert fold.validation is not None
    train, validation = (
        {masked_of(part).name(index) for index in range(len(part))} for part in (fold.train, fold.validation)
    )
    assert not train & validation
