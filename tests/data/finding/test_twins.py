"""Images and masks in folders of other names are a question, and never two classes."""

from pathlib import Path

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.finding.find import find_data
from drivetrain.data.finding.twins import refuse_twins
from tests.data.finding.layouts import write_flat
from tests.data.folders import write_images
from tests.data.mask_files import classes, colour, grey, save, write_pairs


def _write(folder: Path, *stems: str, mask: bool = False) -> None:
    for seed, stem in enumerate(stems):
        save(folder / f"{stem}.png", classes(2, seed=seed) if mask else grey(seed=seed))


@pytest.mark.parametrize(
    ("images", "masks", "mask_stems"),
    [
        ("JPEGImages", "SegmentationClass", ("2007_1a",)),
        ("input", "target", ("2007_1a", "2007_2b")),
        ("original", "ground truth", ("2007_1a", "2007_2b")),
        ("x", "y", ("2007_1a", "2007_2b")),
        ("car", "car_masks", ("2007_1a_mask",)),
        ("scans", "outlines", ("2007_1a", "2007_2b")),
    ],
)
def test_images_and_masks_are_no_classes(
    images: str, masks: str, mask_stems: tuple[str, ...], tmp_path: Path
) -> None:
    _write(tmp_path / images, "2007_1a", "2007_2b")
    _write(tmp_path / masks, *mask_stems, mask=True)
    with pytest.raises(BadInputError) as refused:
        find_data(tmp_path)
    assert str(refused.value) == (
        f"{images} and {masks} in {tmp_path} seem to hold images and their masks; rename them to images and "
        "masks, or add --dataset image-folder if they are classes."
    )
    assert find_data(tmp_path, dataset="image-folder").dataset == "image-folder"


@pytest.mark.parametrize("form", ["{}annot", "{}_masks", "{}_labels"])
def test_masks_beside_the_folders_of_splits(form: str, tmp_path: Path) -> None:
    for split in ("test", "train"):
        write_flat(tmp_path / split)
        _write(tmp_path / form.format(split), "0_L", "1_L", mask=True)
    own = tmp_path / "train"
    with pytest.raises(BadInputError, match=f"move them to {own / 'images'} and {own / 'masks'}, or add"):
        find_data(tmp_path)


def test_masks_inside_the_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_flat(tmp_path / split / "input")
        _write(tmp_path / split / "target", "0", "1", mask=True)
    with pytest.raises(BadInputError, match=f"input and target in {tmp_path / 'train'} seem to hold"):
        find_data(tmp_path)


def test_pixels_tell_masks_where_names_only_count(tmp_path: Path) -> None:
    write_images(tmp_path, {"cat": 3, "dog": 3})
    refuse_twins(tmp_path)
    for number in range(3):
        save(tmp_path / "cat" / f"00{number}.png", classes(2, seed=number))
    with pytest.raises(BadInputError, match=r"dog and cat in .* seem to hold images and their masks"):
        refuse_twins(tmp_path)


def test_classes_are_classes(tmp_path: Path) -> None:
    for name, pixels in {"x": colour(), "y": np.zeros((4, 4), dtype=np.uint8)}.items():
        save(tmp_path / name / f"{name}1.png", pixels)
        save(tmp_path / name / f"{name}2.png", pixels)
    refuse_twins(tmp_path)


def test_pairs_in_folders_of_known_names_ask_nothing(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    assert find_data(tmp_path).dataset == "mask-folder"
