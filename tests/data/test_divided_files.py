from pathlib import Path
from typing import Any

import pytest

from drivetrain.data.divided_files import warn_of_divided_files
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.mask_files import write_pairs, write_volume


@pytest.mark.parametrize("split", [{"folds": 5, "fold": 1}, {"validation_fraction": 0.3}])
def test_pages_of_one_file_on_both_sides(tmp_path: Path, split: dict[str, Any]) -> None:
    write_volume(tmp_path, sizes=[(12, 10)] * 10)
    recipe = Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same", **split)
    opened = open_data(recipe)
    (warning,) = warn_of_divided_files(opened)
    assert warning in opened.warnings
    assert warning.startswith(f"Pages of {tmp_path}")
    assert "train/ and val/" in warning


def test_whole_files_on_each_side(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_volume(tmp_path / split, sizes=[(12, 10)] * 3)
    opened = open_data(Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same"))
    assert opened.validation is not None
    assert (len(opened.train), len(opened.validation)) == (3, 3)
    assert warn_of_divided_files(opened) == []


def test_files_of_one_image_each(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=6)
    recipe = Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same", folds=3, fold=0)
    assert warn_of_divided_files(open_data(recipe)) == []
