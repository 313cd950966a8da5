"""Which recipe augments images with masks how."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import DenseAugmentation
from drivetrain.data.augment.crop_and_resize import CropAndResize
from drivetrain.data.augment.flip import DenseFlip
from drivetrain.data.augment.from_recipe import build_dense_augmentation
from drivetrain.data.augment.intensity import Brightness, Gamma, Noise
from drivetrain.data.augment.warp import Elastic, Rotate
from drivetrain.data.preprocess import DensePreprocess
from drivetrain.data.source import DataSpec
from drivetrain.recipe.params import FlipDirection
from drivetrain.recipe.schema import Recipe
from tests.data.dense_samples import dense_spec

FLIPS = (DenseFlip("horizontal"), DenseFlip("vertical"))
CROP = CropAndResize(num_classes=2)


def built(spec: DataSpec | None = None, *, margin: int = 0, **fields: Any) -> DenseAugmentation | None:
    spec = spec or dense_spec(256, 256)
    preprocess = DensePreprocess(spec, image_size=None, margin=margin)
    return build_dense_augmentation(Recipe(seed=7, **fields), spec, preprocess=preprocess)


def test_the_systems_chain_is_asked_for() -> None:
    expected = DenseAugmentation(7, (*FLIPS, CROP, Brightness()))
    for dataset in ("isbi2012", "mask-folder", "synthetic-em"):
        assert built(dataset=dataset, augment=True) == expected


def test_by_default_images_are_flipped() -> None:
    for dataset in ("isbi2012", "mask-folder", "synthetic-em"):
        assert built(dataset=dataset) == DenseAugmentation(7, FLIPS)
        assert built(dataset=dataset, augment=False) is None


@pytest.mark.parametrize(
    ("asked", "directions"),
    [
        ("none", ()),
        ("horizontal", ("horizontal",)),
        ("vertical", ("vertical",)),
        ("both", ("horizontal", "vertical")),
    ],
)
def test_the_directions_are_chosen(asked: str, directions: tuple[FlipDirection, ...]) -> None:
    found = built(dataset="mask-folder", random_flips=asked)
    assert (() if found is None else found.techniques) == tuple(map(DenseFlip, directions))
    assert built(dataset="mask-folder", random_flips=asked, augment=False) is None


def test_options_come_on_top_and_bend_before_the_crop() -> None:
    fields: dict[str, Any] = {"rotate": 15, "elastic": 8, "gamma": 0.2, "noise": 0.05}
    rotate = Rotate(degrees=15, num_classes=2, padding=92)
    elastic = Elastic(shift=8, num_classes=2, padding=92)
    late = (Gamma(spread=0.2), Noise(deviation=0.05))
    everything = built(margin=92, dataset="isbi2012", augment=True, **fields)
    assert everything == DenseAugmentation(7, (*FLIPS, rotate, elastic, CROP, Brightness(), *late))
    alone = built(margin=92, dataset="isbi2012", **fields)
    assert alone == DenseAugmentation(7, (*FLIPS, rotate, elastic, *late))
    assert built(margin=92, augment=False, rotate=15) == DenseAugmentation(7, (rotate,))


def test_tiles_have_no_padding() -> None:
    spec = dense_spec(300, 200, classes=4, tile=128)
    rotated = built(spec, margin=92, dataset="isbi2012", rotate=180)
    assert rotated == DenseAugmentation(7, (*FLIPS, Rotate(degrees=180, num_classes=4, padding=0)))


def test_images_are_not_folded() -> None:
    assert built(dataset="isbi2012", elastic=32) is not None
    with pytest.raises(BadInputError, match=r"--elastic 33 would fold .* 256 pixels .*--elastic 32 works"):
        built(dataset="isbi2012", elastic=33)


def test_clipping_needs_to_know_what_white_is() -> None:
    spec = dense_spec(256, 256, image_dtype="float32")
    with pytest.raises(BadInputError, match=r"--augment.* needs 8-bit images.*--augment False"):
        built(spec, dataset="isbi2012", augment=True)
    with pytest.raises(BadInputError, match=r"--gamma 0.1 needs 8-bit images.*--gamma 0"):
        built(spec, dataset="isbi2012", gamma=0.1)
    assert built(spec, dataset="isbi2012", noise=0.1) == DenseAugmentation(7, (*FLIPS, Noise(deviation=0.1)))
