"""A --data-dir of the wrong level is answered with the folder that was meant."""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.files.data_dir import folder_that_works
from drivetrain.data.files.tiff_pages import write_pages
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images
from tests.data.mask_files import classes, grey, save, write_pairs


def _objects(folder: Path) -> None:
    for number in range(7):
        save(folder / f"{number}" / "images" / f"{number}.png", grey())
        for mask in range(9):
            save(folder / f"{number}" / "masks" / f"{number}{mask}.png", classes(2))


def _in_splits(folder: Path) -> None:
    write_pairs(folder / "train")
    write_pairs(folder / "val")


def _photographs(folder: Path) -> None:
    write_images(folder, {"cat": 2, "dog": 2})


def _divided_photographs(folder: Path) -> None:
    for split in ("train", "val"):
        write_images(folder / split, {"cat": 2, "dog": 2})


def _mnist(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        pixels = struct.pack(">4i", 2051, 2, 28, 28) + bytes(2 * 28 * 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(pixels)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 2) + bytes([0, 1]))


def _cifar(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(bytes(3073))


def _isbi(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("train-volume.tif", "train-labels.tif"):
        write_pages(folder / name, [np.zeros((16, 16), dtype=np.uint8)] * 2)


def _pack(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    source = folder.parent.parent / "source"
    _photographs(source)
    write_pack(source, folder, request=PackRequest())


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        ("mask-folder", write_pairs),
        ("mask-folder", _objects),
        ("mask-folder", _in_splits),
        ("image-folder", _photographs),
        ("image-folder", _divided_photographs),
        ("mnist", _mnist),
        ("cifar10", _cifar),
        ("isbi2012", _isbi),
        ("packed", _pack),
    ],
)
@pytest.mark.parametrize("below", ["meant", "some/meant"])
def test_one_or_two_levels_too_high(
    tmp_path: Path, dataset: str, write: Callable[[Path], object], below: str
) -> None:
    meant = tmp_path / "high" / below
    write(meant)
    recipe = Recipe(model="unet_same" if "mask" in dataset else "cifar_resnet8", dataset=dataset)
    open_data(recipe.model_copy(update={"data_dir": str(meant)}))
    with pytest.raises(BadInputError) as refused:
        open_data(recipe.model_copy(update={"data_dir": str(tmp_path / "high")}))
    sentence = str(refused.value)
    assert f"--data-dir {meant} " in sentence
    assert sentence.count(str(tmp_path)) == 2


def test_one_level_too_low(tmp_path: Path) -> None:
    write_pairs(tmp_path / "cells")
    with pytest.raises(BadInputError, match=rf"but --data-dir {tmp_path / 'cells'} does; use that folder"):
        open_data(Recipe(dataset="mask-folder", data_dir=str(tmp_path / "cells" / "images")))
    write_images(tmp_path / "photos", {"cat": 2, "dog": 2})
    with pytest.raises(
        BadInputError, match=rf"but --data-dir {tmp_path / 'photos'} contains the classes cat, dog"
    ):
        open_data(Recipe(dataset="image-folder", data_dir=str(tmp_path / "photos" / "cat")))


def test_one_level_too_low_by_a_path_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path / "cells")
    write_images(tmp_path / "photos", {"cat": 2, "dog": 2})
    for dataset, part in (("mask-folder", "cells/images"), ("image-folder", "photos/cat")):
        (tmp_path / part / "below").mkdir()
        for here, named in ((part, "."), (f"{part}/below", "..")):
            monkeypatch.chdir(tmp_path / here)
            meant = rf"but --data-dir {(tmp_path / part).parent} (does|contains the classes cat, dog)"
            with pytest.raises(BadInputError, match=meant):
                open_data(Recipe(dataset=dataset, data_dir=named))


def _refuse_to_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a folder of another user does, also to a test that runs as root."""
    for name in ("listdir", "scandir"):
        listing = getattr(os, name)

        def refuse(path: Any = ".", *, listing: Callable[[Any], Any] = listing) -> Any:
            if Path(path) == folder:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return listing(path)

        monkeypatch.setattr(os, name, refuse)


def test_a_folder_above_that_cannot_be_listed_is_not_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "images" / "1.png", grey())
    _refuse_to_list(tmp_path, monkeypatch)
    folder = tmp_path / "images"
    with pytest.raises(BadInputError, match=rf"--data-dir {folder} contains no class folders"):
        open_data(Recipe(dataset="image-folder", data_dir=str(folder)))
    with pytest.raises(BadInputError, match=rf"no mask was found for {folder}/1\.png"):
        open_data(Recipe(dataset="mask-folder", data_dir=str(folder)))


def test_a_folder_above_that_is_no_data_set_is_not_spoken_of(tmp_path: Path) -> None:
    for split in ("train", "val", "validation"):
        write_images(tmp_path / split, {"cat": 1, "dog": 1})
    folder = write_images(tmp_path, {"cat": 1}) / "cat"
    with pytest.raises(BadInputError, match=rf"--data-dir {folder} contains no class folders"):
        open_data(Recipe(dataset="image-folder", data_dir=str(folder)))


def test_a_folder_below_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for image in ("0/images/a", "0/images/b", "0/masks/a", "1/images/a", "1/masks/a"):
        save(tmp_path / f"{image}.png", grey())
    _refuse_to_list(tmp_path / "1" / "images", monkeypatch)
    with pytest.raises(BadInputError, match=rf"--data-dir: {tmp_path}/1/images cannot be read"):
        open_data(Recipe(dataset="mask-folder", data_dir=str(tmp_path)))


def test_a_folder_of_the_right_form_is_told_what_is_wrong_with_it(tmp_path: Path) -> None:
    write_pairs(tmp_path / "images" / "more")
    write_pairs(tmp_path)
    (tmp_path / "masks" / "1.png").unlink()
    with pytest.raises(BadInputError, match=r"no mask was found for .*images/1\.png"):
        open_data(Recipe(dataset="mask-folder", data_dir=str(tmp_path)))


def test_where_no_folder_would_do(tmp_path: Path) -> None:
    (tmp_path / "a" / ".hidden").mkdir(parents=True)
    assert folder_that_works(tmp_path / "a", lambda path: path.name == ".hidden") is None
    for dataset in ("mask-folder", "image-folder", "mnist", "cifar10", "isbi2012", "packed"):
        with pytest.raises(BadInputError, match="--data-dir"):
            open_data(Recipe(dataset=dataset, data_dir=str(tmp_path / "a")))


def test_folders_of_the_same_classes_are_no_classes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / "level" / name, {"cat": 2, "dog": 2})
    recipe = Recipe(dataset="image-folder", data_dir=str(tmp_path / "level"), validation_fraction=0.0)
    with pytest.raises(
        BadInputError,
        match=r"\(cat, dog\) in each of a, b; if these folders are the classes, use "
        rf"--data-dir {tmp_path}/level/a;",
    ):
        open_data(recipe)
    (tmp_path / "level").rename(tmp_path / "train")
    moved = recipe.model_copy(update={"data_dir": str(tmp_path)})
    assert open_data(moved).spec.class_names == ("a", "b")


@pytest.mark.parametrize(
    "folders",
    [
        ("animal/cat", "animal/dog", "plant/fern", "plant/moss"),
        ("animal/images", "plant/images"),
        ("animal/cat", "animal/dog", "plant/cat", "plant/dog", "plant"),
    ],
)
def test_classes_may_be_divided_into_folders(tmp_path: Path, folders: tuple[str, ...]) -> None:
    write_images(tmp_path, dict.fromkeys(folders, 2))
    recipe = Recipe(dataset="image-folder", data_dir=str(tmp_path), validation_fraction=0.0)
    assert open_data(recipe).spec.class_names == ("animal", "plant")


def test_a_folder_of_data_and_runs_is_refused_before_its_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path / "cells")
    _photographs(tmp_path / "photos")
    write_images(tmp_path / "a_runs", {"first": 1, "second": 1})
    (tmp_path / "a_runs" / "first" / "recipe.yaml").write_text("")
    (tmp_path / "photos" / "cat" / "gone.png").symlink_to("nowhere.png")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BadInputError,
        match=r"^--data-dir \. .* but --data-dir photos contains the classes cat, dog; use that folder\.$",
    ):
        open_data(Recipe(dataset="image-folder", data_dir="."))
