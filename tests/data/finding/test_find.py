"""Every layout is recognised, said in a sentence, and opened by the data set that is named."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.finding.find import find_data
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.finding.layouts import (
    TWO,
    write_beside,
    write_flat,
    write_labels,
    write_nuclei,
    write_splits,
)
from tests.data.folders import write_images, write_table
from tests.data.mask_files import write_pairs, write_volume
from tests.data.sources.cifar_files import write_binary10, write_python100
from tests.data.sources.isbi_files import write_isbi
from tests.data.sources.mnist_files import write_mnist


def _masks_in(folder: Path, *names: str) -> Path:
    for name in names:
        write_pairs(folder / name)
    return folder


def _other_names(folder: Path) -> Path:
    write_pairs(folder)
    (folder / "images").rename(folder / "imgs")
    (folder / "masks").rename(folder / "Ground_Truth")
    return folder


def _pack(folder: Path) -> Path:
    write_images(folder.parent / "source", TWO)
    write_pack(str(folder.parent / "source"), str(folder), request=PackRequest(image_size=8))
    return folder


LAYOUTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "class folders": (
        lambda folder: write_images(folder, TWO),
        "image-folder",
        "holds 6 images of 2 classes (cat, dog), from class folders.",
    ),
    "train and val": (
        lambda folder: write_splits(folder, "train", "val"),
        "image-folder",
        "holds 6 training and 6 validation images of 2 classes (cat, dog), from class folders.",
    ),
    "other spellings": (
        lambda folder: write_splits(folder, "Training", "valid", "testing"),
        "image-folder",
        "holds 6 training, 6 validation and 6 test images of 2 classes (cat, dog), from class folders.",
    ),
    "twin folders": (
        write_pairs,
        "mask-folder",
        "holds 3 images with masks, in folders for images and for masks.",
    ),
    "other names": (
        _other_names,
        "mask-folder",
        "holds 3 images with masks, in folders for images and for masks.",
    ),
    "twin folders in splits": (
        lambda folder: _masks_in(folder, "train", "validation"),
        "mask-folder",
        "holds 3 training and 3 validation images with masks, in folders for images and for masks.",
    ),
    "masks beside": (
        write_beside,
        "mask-folder",
        "holds 3 images with masks, each mask beside its image.",
    ),
    "folder per image": (
        write_nuclei,
        "mask-folder",
        "holds 2 images with masks for each of 6 objects, in one folder per image.",
    ),
    "pages": (
        write_volume,
        "mask-folder",
        "holds 1 TIFF file of many images with masks, in folders for images and for masks.",
    ),
    "table": (
        write_labels,
        "image-table",
        "holds 4 images of 2 classes (x, y), from the column label of labels.csv.",
    ),
    "pack": (_pack, "packed", "is a pack of 6 images in 2 classes (cat, dog)."),
    "mnist": (write_mnist, "mnist", "holds the files of mnist: handwritten digits, 10 classes."),
    "cifar10": (write_binary10, "cifar10", "holds the files of cifar10: small photographs, 10 classes."),
    "cifar100": (
        write_python100,
        "cifar100",
        "holds the files of cifar100: small photographs with fine labels, 100 classes.",
    ),
    "isbi2012": (
        write_isbi,
        "isbi2012",
        "is laid out like ISBI 2012: a volume of images and one of their masks, 2 classes.",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_recognised_and_its_reader_opens_it(name: str, tmp_path: Path) -> None:
    write, dataset, sentence = LAYOUTS[name]
    folder = tmp_path / "data"
    if name != "pack":
        folder.mkdir()
    write(folder)
    found = find_data(folder)
    what = f"{folder} {sentence}"
    assert (found.dataset, found.data_dir, found.sentence) == (dataset, folder, what)
    assert found.left_out == ()
    recipe = Recipe(dataset=dataset, data_dir=str(folder), model="unet_same")
    assert len(open_data(recipe).train) > 0


@pytest.mark.parametrize("name", ["class folders", "folder per image", "table", "mnist"])
def test_a_single_folder_inside_is_used_and_said(name: str, tmp_path: Path) -> None:
    inner = tmp_path / "download" / "data"
    inner.mkdir(parents=True)
    LAYOUTS[name][0](inner)
    (tmp_path / "download" / "__MACOSX").mkdir()
    found = find_data(tmp_path / "download")
    assert (found.dataset, found.data_dir) == (LAYOUTS[name][1], inner)
    assert found.left_out == (f"{inner} is the only folder in {tmp_path / 'download'} and is used.",)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    write_images(tmp_path, TWO)
    for name in ("cat/notes.txt", "cat/more.txt", "readme.md"):
        (tmp_path / name).write_text("x")
    write_flat(tmp_path, count=1)
    assert find_data(tmp_path).left_out == (
        "3 files are not images (.txt, .md) and are left out.",
        f"Images in {tmp_path} itself are in no class folder and are left out: 0.png.",
    )


def test_folders_beside_the_splits_and_empty_classes_are_said(tmp_path: Path) -> None:
    write_splits(tmp_path, "train", "extra")
    write_images(tmp_path / "val", {"cat": 1, "dog": 0})
    assert find_data(tmp_path).left_out == (
        f"{tmp_path} also contains extra; only train, val and test are used.",
        f"{tmp_path / 'val'} contains no images of class dog.",
    )


def test_test_images_without_masks_are_said(tmp_path: Path) -> None:
    write_pairs(tmp_path / "train")
    write_flat(tmp_path / "test" / "images")
    (left_out,) = find_data(tmp_path).left_out
    assert left_out.startswith(f"{tmp_path / 'test' / 'images'} has no masks and is not used; ")


def _class_folders_with_masks(folder: Path) -> None:
    write_beside(folder / "benign")
    write_beside(folder / "malignant")


def _class_folders_with_table(folder: Path) -> None:
    write_images(folder, TWO)
    rows = [f"{name}/00{number}.png,{number % 2}" for name in TWO for number in range(3)]
    write_table(folder / "labels.csv", "file,label", *rows)


def _masks_with_table(folder: Path) -> None:
    write_pairs(folder, count=4)
    rows = [f"images/{number}.png,{number % 2}" for number in range(4)]
    write_table(folder / "labels.csv", "file,label", *rows)


@pytest.mark.parametrize(
    ("write", "datasets"),
    [
        (_class_folders_with_masks, ("image-folder", "mask-folder")),
        (_class_folders_with_table, ("image-folder", "image-table")),
        (_masks_with_table, ("mask-folder", "image-table")),
    ],
)
def test_two_ways_to_read_a_folder_are_a_question(
    write: Callable[[Path], None], datasets: tuple[str, str], tmp_path: Path
) -> None:
    write(tmp_path)
    one, other = datasets
    with pytest.raises(BadInputError, match=rf"2 ways; add --dataset {one} \(.*\) or --dataset {other} \("):
        find_data(tmp_path)
    for dataset in datasets:
        found = find_data(tmp_path, dataset=dataset)
        assert (found.dataset, found.data_dir) == (dataset, tmp_path)
        assert len(open_data(Recipe(dataset=dataset, data_dir=str(tmp_path))).train) > 0


def test_a_named_column_means_the_table(tmp_path: Path) -> None:
    _class_folders_with_table(tmp_path)
    found = find_data(tmp_path, options={"label_column": "label"})
    assert (found.dataset, found.options) == ("image-table", {"label_column": "label"})


def test_a_table_that_repeats_the_folders_asks_nothing(tmp_path: Path) -> None:
    write_images(tmp_path, TWO)
    rows = [f"{name}/00{number}.png,{number},{name}" for name in TWO for number in range(3)]
    write_table(tmp_path / "labels.csv", "file,number,class", *rows)
    assert find_data(tmp_path).dataset == "image-folder"


def _write_split(folder: Path, header: str) -> None:
    """Class folders, and a table with their split."""
    write_images(folder, TWO)
    row = {"file,split": "{0}/00{1}.png,{2}", "file,label,split": "{0}/00{1}.png,{0},{2}"}[header]
    rows = [row.format(name, place, ("val", "train")[place > 0]) for name in TWO for place in range(3)]
    write_table(folder / "labels.csv", header, *rows)


def test_the_split_of_a_table_beside_class_folders_is_a_question(tmp_path: Path) -> None:
    _write_split(tmp_path / "one", "file,label,split")
    with pytest.raises(BadInputError, match=r"or --dataset image-table \(.*, their split from split\)"):
        find_data(tmp_path / "one")
    _write_split(tmp_path / "two", "file,split")
    with pytest.raises(
        BadInputError, match=r"the column split of labels\.csv, .*; add --dataset image-folder"
    ):
        find_data(tmp_path / "two")
    assert find_data(tmp_path / "two", dataset="image-folder").dataset == "image-folder"


def test_a_split_that_the_folders_say_too_asks_nothing(tmp_path: Path) -> None:
    write_splits(tmp_path, "train", "val")
    rows = [f"{part}/{name}/000.png,{name},{part}" for part in ("train", "val") for name in TWO]
    write_table(tmp_path / "labels.csv", "file,label,split", *rows)
    assert find_data(tmp_path).dataset == "image-folder"


def test_a_table_that_needs_a_question_does_not_hide_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path, TWO)
    rows = [f"{name}/00{number}.png,{number % 2},{number % 3}" for name in TWO for number in range(3)]
    write_table(tmp_path / "facts.csv", "file,age,sex", *rows)
    found = find_data(tmp_path)
    assert found.dataset == "image-folder"
    assert found.left_out[-1] == "No classes are taken from facts.csv; --dataset image-table does that."


def test_some_files_called_like_masks_do_not_make_masks(tmp_path: Path) -> None:
    write_images(tmp_path, TWO)
    (tmp_path / "cat" / "000.png").rename(tmp_path / "cat" / "001_mask.png")
    found = find_data(tmp_path)
    assert found.dataset == "image-folder"
    assert found.left_out == ("Files called like masks are read as images of their folders.",)


def test_a_part_of_published_files_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(BadInputError, match=r"contains neither t10k-labels-idx1-ubyte\.gz nor"):
        find_data(tmp_path)


def test_a_named_data_set_is_left_to_its_reader(tmp_path: Path) -> None:
    write_flat(tmp_path)
    for dataset in ("image-folder", "mnist", "package.module:load"):
        found = find_data(tmp_path, dataset=dataset)
        assert (found.dataset, found.data_dir) == (dataset, tmp_path)
        assert found.sentence == f"{tmp_path} is read as --dataset {dataset}."


def test_looking_needs_no_torch() -> None:
    code = "import sys, drivetrain.data.finding.find; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
