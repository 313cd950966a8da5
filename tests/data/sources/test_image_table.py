"""Images whose classes stand in a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_table
from tests.data.mask_files import grey, save


def write_numbered(folder: Path, count: int = 6, *, first: int = 0) -> Path:
    """Grey images of one value each, their number."""
    for number in range(first, first + count):
        save(folder / f"{number}.png", np.full((4, 4), number, dtype=np.uint8))
    return folder


def opened(folder: Path, **fields: Any) -> DataSplits:
    return open_data(Recipe(**{"dataset": "image-table", "data_dir": str(folder), **fields}))


def classes(data: DataSplits, split: str = "train") -> dict[int, str]:
    """The class of each image, by the number that is its brightness."""
    source = getattr(data, split)
    if source is None:
        return {}
    images, labels = source.fetch(np.arange(len(source)))
    return {
        int(image[0, 0, 0]): data.spec.class_names[label] for image, label in zip(images, labels, strict=True)
    }


def test_each_image_gets_its_class(tmp_path: Path) -> None:
    write_numbered(tmp_path / "images")
    write_table(tmp_path / "labels.csv", "file,kind", *(f"{n}.png,{'ab'[n % 2]}" for n in (5, 3, 0, 1, 2, 4)))
    data = opened(tmp_path, validation_fraction=0.0)
    assert classes(data) == {0: "a", 1: "b", 2: "a", 3: "b", 4: "a", 5: "b"}
    assert (data.spec.class_names, data.spec.height, data.warnings) == (("a", "b"), 4, [])
    assert len(opened(tmp_path).train) == 5


def test_numbers_are_in_their_own_order(tmp_path: Path) -> None:
    write_numbered(tmp_path)
    write_table(tmp_path / "labels.csv", "file,label", *(f"{n}.png,{(10, 9, 2)[n % 3]}" for n in range(6)))
    assert opened(tmp_path).spec.class_names == ("2", "9", "10")


def test_a_split_column_is_honoured(tmp_path: Path) -> None:
    write_numbered(tmp_path)
    parts = ("train", "train", "valid", "test", "train", "Test")
    rows = [f"{number}.png,{'ab'[number % 2]},{part}" for number, part in enumerate(parts)]
    write_table(tmp_path / "labels.csv", "file,label,split", *rows)
    data = opened(tmp_path)
    assert [sorted(classes(data, split)) for split in ("train", "validation", "test")] == [
        [0, 1, 4],
        [2],
        [3, 5],
    ]


def test_test_images_validate_where_there_are_no_others(tmp_path: Path) -> None:
    write_numbered(tmp_path)
    rows = [f"{n}.png,{'ab'[n % 2]},{'train' if n < 4 else 'test'}" for n in range(6)]
    write_table(tmp_path / "labels.csv", "file,label,split", *rows)
    data = opened(tmp_path)
    assert (sorted(classes(data, "validation")), data.test) == ([4, 5], None)


def test_tables_of_splits_name_the_images_of_their_folders(tmp_path: Path) -> None:
    """The names 0.png to 3.png are in both folders, with other pixels."""
    write_numbered(tmp_path / "train", 4)
    for number in range(4):
        save(tmp_path / "test" / f"{number}.png", np.full((4, 4), 100 + number, dtype=np.uint8))
    rows = [f"{number},{'ab'[number % 2]}" for number in range(4)]
    write_table(tmp_path / "train_labels.csv", "id,label", *rows)
    write_table(tmp_path / "test_labels.csv", "id,label", *rows)
    write_table(tmp_path / "sample_submission.csv", "id,label", *(f"test/{n},a" for n in range(4)))
    data = opened(tmp_path)
    assert classes(data) == {0: "a", 1: "b", 2: "a", 3: "b"}
    assert classes(data, "validation") == {100: "a", 101: "b", 102: "a", 103: "b"}
    assert "sample_submission.csv is not used." in data.warnings


def test_a_table_without_classes_does_not_hide_the_split_column_of_another(tmp_path: Path) -> None:
    write_numbered(tmp_path)
    rows = [f"{n}.png,{'ab'[n % 2]},{n in (2, 3)}" for n in range(4)]
    write_table(tmp_path / "train.csv", "file,label,is_valid", *rows)
    write_table(tmp_path / "test.csv", "file", "4.png", "5.png")
    data = opened(tmp_path)
    assert [sorted(classes(data, split)) for split in ("train", "validation", "test")] == [[0, 1], [2, 3], []]
    assert data.warnings == [
        "test.csv has no column label and is not used.",
        "2 images not named in train.csv, such as 4.png: left out.",
    ]


def test_folders_split_the_images_of_one_table(tmp_path: Path) -> None:
    write_numbered(tmp_path / "images" / "train", 4)
    write_numbered(tmp_path / "images" / "val", 2, first=4)
    write_table(tmp_path / "labels.csv", "file,label", *(f"{n}.png,{'ab'[n % 2]}" for n in range(6)))
    assert sorted(classes(opened(tmp_path), "validation")) == [4, 5]


def test_options_choose_table_and_columns(tmp_path: Path) -> None:
    write_numbered(tmp_path)
    rows = [f"{n}.png,{5 - n}.png,{n % 2},{n % 3}" for n in range(6)]
    write_table(tmp_path / "one.csv", "left,right,age,sex", *rows)
    write_table(tmp_path / "two.csv", "left,label", *(f"{n}.png,{n % 2}" for n in range(6)))
    with pytest.raises(BadInputError, match=r"several tables .*one\.csv, two\.csv; add --label-table NAME"):
        opened(tmp_path, label_column="sex", file_column="left")
    chosen = {"label_table": "one.csv", "file_column": "right", "label_column": "sex"}
    assert classes(opened(tmp_path, validation_fraction=0.0, **chosen)) == {
        5 - n: str(n % 3) for n in range(6)
    }


def test_images_without_a_row_are_left_out_and_said(tmp_path: Path) -> None:
    write_numbered(tmp_path, 5)
    write_table(tmp_path / "labels.csv", "file,label", *(f"{n}.png,{'ab'[n % 2]}" for n in range(4)))
    data = opened(tmp_path, validation_fraction=0.0)
    assert data.warnings == ["1 image not named in labels.csv, such as 4.png: left out."]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (("9.png,a",), r"names images that are not in .*: 9\.png \(line 6\); add the files, remove the rows"),
        (("0.png,b",), r"names 0\.png twice, in lines 2 and 6; keep one row"),
        (("4.png,",), r"line 6 has no label for 4\.png; add it, or remove the row"),
    ],
)
def test_bad_rows(tmp_path: Path, rows: tuple[str, ...], problem: str) -> None:
    write_numbered(tmp_path, 5)
    good = [f"{n}.png,{'ab'[n % 2]}" for n in range(4)]
    write_table(tmp_path / "labels.csv", "file,label", *good, *rows)
    with pytest.raises(BadInputError, match=problem):
        opened(tmp_path)


def test_missing_files_may_be_skipped(tmp_path: Path) -> None:
    write_numbered(tmp_path, 4)
    write_table(tmp_path / "labels.csv", "file,label", *(f"{n}.png,{'ab'[n % 2]}" for n in range(5)))
    data = opened(tmp_path, on_bad_sample="skip", validation_fraction=0.0)
    assert len(data.train) == 4
    assert data.warnings == ["labels.csv names images that are not there: 4.png (line 6)."]


def test_a_name_that_may_be_two_files(tmp_path: Path) -> None:
    write_numbered(tmp_path / "one", 4)
    save(tmp_path / "two" / "3.png", grey())
    write_table(tmp_path / "labels.csv", "file,label", *(f"{n}.png,{'ab'[n % 2]}" for n in range(4)))
    with pytest.raises(
        BadInputError, match=r"names 3\.png, which may be one/3\.png or two/3\.png; write its"
    ):
        opened(tmp_path)


def test_a_class_that_is_only_validated(tmp_path: Path) -> None:
    write_numbered(tmp_path, 4)
    rows = [f"{n}.png,{'abab'[n] if n else 'c'},{'val' if n in (0, 3) else 'train'}" for n in range(4)]
    write_table(tmp_path / "labels.csv", "file,label,split", *rows)
    with pytest.raises(BadInputError, match="the class c has no training images"):
        opened(tmp_path)


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    write_numbered(tmp_path / "inside")
    with pytest.raises(BadInputError, match="contains no table that names images in it; give a folder that"):
        opened(tmp_path)
    with pytest.raises(BadInputError, match=r"--label-table x\.csv is not a file in "):
        opened(tmp_path, label_table="x.csv")
    write_table(tmp_path / "inside" / "labels.csv", "file,label", *(f"{n}.png,{n % 2}" for n in range(6)))
    with pytest.raises(BadInputError, match=f"use --data-dir {tmp_path / 'inside'}"):
        opened(tmp_path)


def test_the_options_are_for_tables_only() -> None:
    with pytest.raises(BadInputError, match="--label-column kind is for --dataset image-table, and this is"):
        resolve_recipe(overrides={"dataset": "image-folder", "data_dir": "x", "label_column": "kind"})


def test_check_and_look_take_the_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_numbered(tmp_path)
    rows = [f"{n}.png,{n % 2},{n % 3}" for n in range(6)]
    write_table(tmp_path / "labels.csv", "file,age,sex", *rows)
    assert main(["data", "check", "image-table", "--data-dir", str(tmp_path), "--label-column", "sex"]) == 0
    assert "6 training and 0 validation samples, 3 classes" in capsys.readouterr().out
    assert main(["data", "look", str(tmp_path)]) == 2
    assert "age, sex; add --label-column NAME" in capsys.readouterr().err
    assert main(["data", "look", str(tmp_path), "--dataset", "mnist", "--label-column", "sex"]) == 2
    assert "--label-column sex is for image-table, and this is mnist" in capsys.readouterr().err
