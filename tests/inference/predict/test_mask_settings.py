"""The options of `predict` that concern masks."""

from dataclasses import replace
from typing import Any

import pytest

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.inference.predict.mask_settings import MaskSettings
from drivetrain.recipe.schema import Recipe


def _spec(tile: int | None = None, *, task: TaskName = "segmentation") -> DataSpec:
    return DataSpec(
        channels=1,
        height=8,
        width=8,
        num_classes=2,
        class_names=("a", "b"),
        image_dtype="uint8",
        tile=tile,
        task=task,
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"mask_format": "png"}, "--mask-format"),
        ({"probabilities": False}, "--probabilities"),
        ({"overlay": False}, "--overlay"),
        ({"tile_overlap": 0.0}, "--tile-overlap"),
    ],
)
def test_a_classifier_refuses_them(options: dict[str, Any], name: str) -> None:
    with pytest.raises(BadInputError, match=f"^{name} is for runs that predict masks"):
        MaskSettings(**options).check(Recipe(), _spec(task="classification"))
    MaskSettings().check(Recipe(), _spec(task="classification"))
    MaskSettings(**options).check(Recipe(), _spec())


def test_flips_are_for_images() -> None:
    MaskSettings(flips=True).check(Recipe(), _spec(task="classification"))
    table = replace(_spec(task="classification"), input_kind="table")
    MaskSettings(flips=False).check(Recipe(), table)
    with pytest.raises(BadInputError, match=r"--flips is for images, but RUN was trained on rows"):
        MaskSettings(flips=True).check(Recipe(), table)


@pytest.mark.parametrize("overlap", [-0.1, 0.95, float("nan")])
def test_an_overlap_out_of_range(overlap: float) -> None:
    with pytest.raises(BadInputError, match=r"--tile-overlap is .* from 0 to 0.9"):
        MaskSettings(tile_overlap=overlap).check(Recipe(), _spec())


def test_images_of_many_sizes_that_were_scaled_have_no_tiles() -> None:
    settings = MaskSettings(tile_overlap=0.5)
    with pytest.raises(BadInputError, match=r"--tile-overlap has no effect.*--image-size 8"):
        settings.check(Recipe(dataset="mask-folder", image_size=8), _spec())
    settings.check(Recipe(), _spec(tile=8))


def test_images_of_one_size_that_were_scaled_have_tiles() -> None:
    MaskSettings(tile_overlap=0.5).check(Recipe(dataset="mask-folder", image_size=6), _spec())


def test_an_unknown_format_from_python() -> None:
    with pytest.raises(BadInputError, match=r"--mask-format is gif"):
        MaskSettings(mask_format="gif").check(Recipe(), _spec())  # type: ignore[arg-type]
