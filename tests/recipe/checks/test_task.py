"""Model, data and options are of one task, and the parts of a segmentation fit together."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def test_what_fits_is_accepted() -> None:
    resolve_recipe(overrides={"model": "unet", "dataset": "isbi2012", "rotate": 10, "dice_weight": 0.5})
    resolve_recipe(overrides={"model": "unet_same", "dataset": "my.data:load"})
    resolve_recipe(overrides={"model": "my.nets:make", "dataset": "mask-folder", "tile_size": 64})
    resolve_recipe(overrides={"dataset": "digits", "label_smoothing": 0.1})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"model": "unet_same", "dataset": "digits"},
            "--model unet_same is for segmentation and --dataset digits for classification; "
            "--model cifar_resnet8 or --dataset synthetic-em works",
        ),
        (
            {"model": "mnist_cnn", "dataset": "synthetic-em"},
            "--model mnist_cnn is for classification and --dataset synthetic-em for segmentation; "
            "--model unet_same or --dataset digits works",
        ),
        ({"dataset": "digits", "tile_size": 8}, "--tile-size 8 is for segmentation, and this is class"),
        ({"dataset": "digits", "fold_scheme": "graphcore"}, "--fold-scheme graphcore is for segmentation"),
        ({"model": "cifar_resnet8", "dice_weight": 2.0}, "--dice-weight 2.0 is for segmentation"),
        ({"mixup": 0.2}, "--mixup 0.2 is for classification, and this is segmentation; leave it out"),
        ({"label_smoothing": 0.1}, "--label-smoothing 0.1 is for classification"),
        ({"model": "unet", "random_resized_crop": 0.5}, "--random-resized-crop 0.5 is for classification"),
    ],
)
def test_what_is_of_another_task_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        resolve_recipe(overrides=options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"tile_size": 64, "image_size": 128},
            "--tile-size 64 keeps the images' own resolution and --image-size 128 changes it; leave one out",
        ),
        (
            {"dice_weight": 0, "cross_entropy_weight": 0},
            "--cross-entropy-weight 0 and --dice-weight 0 leave no loss; --dice-weight 1 works",
        ),
        (
            {"cross_entropy_weight": 0, "class_weights": "balanced"},
            "--class-weights balanced weights the cross-entropy, which --cross-entropy-weight 0.* turns off",
        ),
        (
            {"cross_entropy_weight": 0, "border_weight": 10},
            "--border-weight 10.* weights the cross-entropy, .*; --cross-entropy-weight 1 works",
        ),
        ({"border_sigma": 3}, "--border-sigma 3.0 has no effect with --border-weight 0"),
    ],
)
def test_parts_of_a_segmentation_that_contradict_each_other(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        resolve_recipe(overrides=options)


def test_own_data_are_checked_once_they_are_known() -> None:
    given = Given(Recipe(dataset="my.data:load", model="my.nets:make", rotate=5.0), {})
    check_task_options(given, task="segmentation")
    with pytest.raises(BadInputError, match=r"--rotate 5\.0 is for segmentation"):
        check_task_options(given, task="classification")


def test_own_data_of_another_task_than_the_model() -> None:
    given = Given(Recipe(dataset="my.data:load", model="unet_same"), {})
    check_task_options(given, task="segmentation")
    with pytest.raises(
        BadInputError,
        match="--model unet_same is for segmentation, but the data are for classification; "
        "--model cifar_resnet8 works",
    ):
        check_task_options(given, task="classification")
