"""What is no data set is refused in one sentence, before anything is written."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.data.finding.find import find_data
from tests.data.finding.layouts import TWO, write_flat, write_nuclei, write_splits
from tests.data.folders import write_images, write_table
from tests.data.mask_files import grey, save, save_pages, write_pairs


def _texts(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def _runs(folder: Path, *names: str) -> None:
    for name in names:
        _texts(folder / name, "recipe.yaml", "identity.json")


def _zip(path: Path) -> None:
    zipfile.ZipFile(path, "w").close()


def _background(folder: Path) -> None:
    for number in range(3):
        save(folder / "images" / f"{number}.png", grey(seed=number))
        save(folder / "masks" / f"{number}.png", np.zeros((12, 10), dtype=np.uint8))


def _boxes(folder: Path, *parts: str) -> None:
    for place in [folder / part for part in parts] or [folder]:
        write_flat(place / "images")
        _texts(place, *(f"labels/{number}.txt" for number in range(4)))


def _nuclei_with_table(folder: Path) -> None:
    write_nuclei(folder / "stage1_train")
    write_flat(folder / "stage1_test" / "id9" / "images", count=1)
    rows = [f"id{number % 2},{number} 3" for number in range(6)]
    write_table(folder / "stage1_train_labels.csv", "ImageId,EncodedPixels", *rows)


def _one_page(folder: Path) -> None:
    save_pages(folder / "images" / "a.tif", [grey()])
    save_pages(folder / "masks" / "a.tif", [grey()])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda folder: None, "{folder} is empty; give the folder that holds your images."),
    "empty folders": (lambda folder: (folder / "cat").mkdir(), "{folder} is empty; "),
    "texts": (lambda folder: _texts(folder, "a.txt", "b.md"), "holds 2 files (.md, .txt), but no images; "),
    "videos": (
        lambda folder: _texts(folder, "a.mp4", "b.avi"),
        "holds 2 videos (.avi, .mp4) and no images; save frames as images (ffmpeg ",
    ),
    "zip inside": (
        lambda folder: _zip(folder / "a.zip"),
        "holds no images but an archive, a.zip; unpack it (unzip {folder}/a.zip -d {folder}/a)",
    ),
    "one image": (lambda folder: write_flat(folder, count=1), "holds one image, 0.png, only; "),
    "one image with a mask": (
        lambda folder: write_pairs(folder, count=1),
        "holds 1 image with masks only; training needs at least two images",
    ),
    "one page": (_one_page, "holds 1 image with masks only; "),
    "one class": (
        lambda folder: write_images(folder, {"cat": 3}),
        "{folder}: all 3 images are of one class, cat, so there is nothing to tell apart; ",
    ),
    "one class with images": (
        lambda folder: write_images(folder, {"cat": 3, "dog": 0}),
        "all 3 images are of one class, cat",
    ),
    "one class in splits": (
        lambda folder: [write_images(folder / name, {"cat": 3}) for name in ("train", "val")],
        "all 6 images are of one class, cat",
    ),
    "no labels": (
        write_flat,
        "holds 4 images, but nothing says what they show; sort them into one folder per class "
        "({folder}/cat/1.jpg, ",
    ),
    "background": (
        _background,
        "holds masks of background only: every pixel of the 3 masks has the value 0, ",
    ),
    "bounding boxes": (_boxes, "{folder}/labels holds .txt instead of masks, and bounding boxes are not "),
    "missing mask": (
        lambda folder: save(write_pairs(folder) / "images" / "9.png", grey()),
        "no mask was found for {folder}/images/9.png; ",
    ),
    "several data sets": (
        lambda folder: [write_splits(folder / name, "train", "val") for name in ("one", "two")],
        "use the data set in {folder}/one.",
    ),
    "training and test images": (
        lambda folder: [write_images(folder / f"{name}/{name}", TWO) for name in ("seg_test", "seg_train")],
        "use the data set in {folder}/seg_train/seg_train, or to use {folder}/seg_test/seg_test, too, move "
        "them to {folder}/train and {folder}/test.",
    ),
    "bounding boxes of splits": (
        lambda folder: _boxes(folder, "train", "valid"),
        "{folder}/train/labels holds .txt instead of masks, and bounding boxes are not supported; ",
    ),
    "classes called like masks": (
        lambda folder: write_images(folder, {"mask": 3, "no_mask": 3}),
        "if mask, no_mask are classes, add --dataset image-folder; otherwise sort them into one folder per ",
    ),
    "numbered labels": (
        lambda folder: write_images(folder, {"label_0": 3, "label_1": 3}),
        "if label_0, label_1 are classes, add --dataset image-folder; otherwise sort them into one folder ",
    ),
    "a class called train": (
        lambda folder: write_images(folder, {"train": 3, "other": 3}),
        "if other, train are classes, add --dataset image-folder; otherwise sort them into one folder per ",
    ),
    "splits without classes": (
        lambda folder: [write_flat(folder / name) for name in ("train", "test")],
        "nothing says what they show; sort them into one folder per class ",
    ),
    "data sets beside class folders": (
        lambda folder: (write_images(folder, {"cat": 1, "dog": 1}), write_splits(folder / "cat", "train")),
        "holds folders that are data sets themselves (cat); name one of them, such as {folder}/cat, ",
    ),
    "runs": (
        lambda folder: _runs(folder, "mine"),
        "holds run directories (mine); to go on with one: drivetrain train --output-dir {folder}/mine.",
    ),
    "runs with images": (
        lambda folder: _runs(write_images(folder, {"one": 2, "two": 2}), "one", "two"),
        "holds run directories (one, two); to go on with one: drivetrain train --output-dir {folder}/one.",
    ),
    "a run beside classes": (
        lambda folder: _runs(write_images(folder, {"cat": 2, "dog": 2}), "mine"),
        "--output-dir {folder}/mine; to train on the rest, move them away.",
    ),
    "nuclei with a table": (
        _nuclei_with_table,
        "{folder} holds images with masks in {folder}/stage1_train; give that folder, or add --dataset "
        "image-table to read the table.",
    ),
    "run": (
        lambda folder: _texts(folder, "recipe.yaml", "identity.json"),
        "{folder} is a run directory; to go on with it: drivetrain train --output-dir {folder}; to use it: "
        "drivetrain predict {folder} IMAGES, or drivetrain evaluate {folder}.",
    ),
    "folds": (lambda folder: _texts(folder, "crossval.json"), "drivetrain crossval --output-dir {folder}."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_is_refused_with_what_would_work(name: str, tmp_path: Path) -> None:
    write, sentence = REFUSED[name]
    folder = tmp_path / "data" / "given"
    folder.mkdir(parents=True)
    write(folder)
    with pytest.raises(BadInputError) as refused:
        find_data(folder)
    assert sentence.format(folder=folder) in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_mask_with_anything_in_it_is_enough(tmp_path: Path) -> None:
    _background(tmp_path)
    save(tmp_path / "masks" / "2.png", np.eye(12, 10, dtype=np.uint8))
    assert find_data(tmp_path).dataset == "mask-folder"


def test_the_folder_above_is_named(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 2, "dog": 2})
    with pytest.raises(BadInputError, match=f"the folder above, {tmp_path / 'photos'}, holds a data set"):
        find_data(tmp_path / "photos" / "cat")


def test_what_is_no_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"cat": 1})
    with pytest.raises(BadInputError, match=f"phots does not exist; use {tmp_path / 'photos'}"):
        find_data(tmp_path / "phots")
    with pytest.raises(BadInputError, match=r"000\.png is a file; give the folder that holds your images"):
        find_data(tmp_path / "photos" / "cat" / "000.png")
    _zip(tmp_path / "a.zip")
    with pytest.raises(BadInputError, match=r"a.zip is an archive; unpack it \(unzip .*a.zip -d .*/a\)"):
        find_data(tmp_path / "a.zip")


def test_what_the_system_refuses_to_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"cannot be read \(File name too long\); check its permissions"):
        find_data(tmp_path / ("x" * 300))


@pytest.mark.parametrize("name", ["empty", "one image", "one class", "background", "videos", "run"])
def test_the_command_ends_with_status_2_and_writes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, desk = tmp_path / "data" / "given", tmp_path / "desk"
    folder.mkdir(parents=True)
    desk.mkdir()
    REFUSED[name][0](folder)
    monkeypatch.chdir(desk)
    assert main(["train", str(folder)]) == 2
    assert REFUSED[name][1].format(folder=folder) in capsys.readouterr().err
    assert [*desk.iterdir()] == []
