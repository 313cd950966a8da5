"""Where images and masks are found."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.find_pairs import (
    MaskOwner,
    find_masked_files,
    find_owner,
    is_mask_name,
    owners_by_name,
)
from tests.data.mask_files import grey, save

IMAGES = ("x", "x_1", "a/y", "img_007", "scan-image", "7")


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        save(folder / name, grey(4, 4))
    return folder


def found(folder: Path, split: str = "train") -> list[tuple[str, tuple[str, ...], bool]]:
    """Images, masks and whether each shows one object, relative to the folder."""
    files = find_masked_files(folder).splits[split]

    def short(path: str) -> str:
        return Path(path).relative_to(folder).as_posix()

    return [(short(file.image), tuple(map(short, file.masks)), file.is_by_object) for file in files]


@pytest.mark.parametrize("images", ["images", "imgs", "img", "Image"])
@pytest.mark.parametrize("masks", ["masks", "labels", "label", "mask", "annotations", "gt"])
def test_twin_folders(tmp_path: Path, images: str, masks: str) -> None:
    touch(tmp_path, f"{images}/b.png", f"{images}/a/c.tif", f"{masks}/b.tif", f"{masks}/a/c_mask.png")
    assert found(tmp_path) == [
        (f"{images}/a/c.tif", (f"{masks}/a/c_mask.png",), False),
        (f"{images}/b.png", (f"{masks}/b.tif",), False),
    ]


def test_beside_each_other(tmp_path: Path) -> None:
    touch(tmp_path, "b.jpg", "b_mask.png", "sub/a.png", "sub/a-gt.png")
    assert found(tmp_path) == [
        ("b.jpg", ("b_mask.png",), False),
        ("sub/a.png", ("sub/a-gt.png",), False),
    ]


def test_a_mask_for_each_object(tmp_path: Path) -> None:
    touch(tmp_path / "one", "images/a.png", "masks/a/1.png", "masks/a/2.png", "images/b.png")
    (tmp_path / "one" / "masks" / "b").mkdir()
    expected = [("images/a.png", ("masks/a/1.png", "masks/a/2.png"), True), ("images/b.png", (), True)]
    assert found(tmp_path / "one") == expected
    touch(tmp_path / "two", "a.png", "a_mask_1.png", "a_mask_2.png")
    assert found(tmp_path / "two") == [("a.png", ("a_mask_1.png", "a_mask_2.png"), True)]
    touch(tmp_path / "three", "id1/images/id1.png", "id1/masks/x.png", "id1/masks/y.png")
    assert found(tmp_path / "three") == [("id1/images/id1.png", ("id1/masks/x.png", "id1/masks/y.png"), True)]


def test_splits(tmp_path: Path) -> None:
    names = ("train/images/a.png", "train/masks/a.png", "val/images/b.png", "val/masks/b.png")
    touch(tmp_path / "outside", *names, "test/images/c.png")
    both = find_masked_files(tmp_path / "outside")
    assert {split: len(files) for split, files in both.splits.items()} == {"train": 1, "validation": 1}
    (warning,) = both.warnings
    assert "test/images has no masks and is not used; run `drivetrain predict`" in warning
    names = ("images/train/a.png", "masks/train/a.png", "images/val/b.png", "masks/val/b.png")
    touch(tmp_path / "inside", *names)
    assert found(tmp_path / "inside", "validation") == [("images/val/b.png", ("masks/val/b.png",), False)]
    touch(tmp_path / "beside", "train/a.png", "train/a_mask.png", "test/b.png", "test/b_mask.png")
    assert found(tmp_path / "beside", "test") == [("test/b.png", ("test/b_mask.png",), False)]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "contains no images with masks; arrange the files like"),
        (("images/a.png", "images/b.png", "masks/a.png"), r"no mask was found for \S*images/b.png;"),
        (
            ("images/a.png", "masks/a.png", "masks/z.png"),
            r"no image was found for the mask \S*masks/z.png; add",
        ),
        (("a.png", "a_mask.png", "z_mask.png"), r"no image was found for the mask \S*z_mask.png"),
        (("a.png", "a_mask.png", "b.png"), r"no mask was found for \S*b.png"),
        (("images/a.png",), r"there are no masks for \S*images; put them into \S*masks"),
        (("images/a.png", "masks/a.png", "labels/a.png"), "contains both labels and masks; keep only one"),
        (
            ("images/a.png", "images/a.jpg", "masks/a.png"),
            "contains both a.jpg and a.png; rename or remove one",
        ),
        (
            ("images/a.png", "masks/a.png", "masks/a_mask.png"),
            r"has two masks, \S*a.png and \S*a_mask.png; keep",
        ),
        (
            ("1/images/a.png", "1/masks/a.png", "2/images/a.png", "2/images/b.png", "2/masks/a.png"),
            "contains 2 images, but each image must have its own",
        ),
        (("train/a.png", "train/a_mask.png", "val/b.png", "validation/b.png"), "both val and validation"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    touch(tmp_path, *names)
    with pytest.raises(BadInputError, match=words):
        find_masked_files(tmp_path)


def test_other_files_are_left_out_and_named(tmp_path: Path) -> None:
    touch(tmp_path, "images/a.png", "masks/a.png", "images/.hidden.png")
    (tmp_path / "masks" / "notes.txt").write_text("x")
    result = find_masked_files(tmp_path)
    assert len(result.splits["train"]) == 1
    (warning,) = result.warnings
    assert "without an image extension are skipped (1 in all): notes.txt" in warning


@pytest.mark.parametrize(
    ("mask", "image", "is_one_of_many"),
    [
        ("x", "x", False),
        ("x_mask", "x", False),
        ("x-mask", "x", False),
        ("x_labels", "x", False),
        ("x_gt", "x", False),
        ("x_SEG", "x", False),
        ("x_mask_1", "x", True),
        ("x_mask12", "x", True),
        ("x_1_mask", "x_1", False),
        ("x_1_mask_2", "x_1", True),
        ("a/y_label", "a/y", False),
        ("x/anything", "x", True),
        ("a/y/object-3", "a/y", True),
        ("mask_007", "img_007", False),
        ("scan_mask", "scan-image", False),
        ("mask_7", "7", False),
    ],
)
def test_owner(mask: str, image: str, is_one_of_many: bool) -> None:
    assert find_owner(mask, owners_by_name(IMAGES)) == MaskOwner(image, is_one_of_many)


@pytest.mark.parametrize("mask", ["z", "z_mask", "y_mask", "xmask", "b/x", "mask_"])
def test_nobody_owns(mask: str) -> None:
    assert find_owner(mask, owners_by_name(IMAGES)) is None


def test_names_of_masks_among_images() -> None:
    assert all(map(is_mask_name, ("x_mask", "a/x-gt", "mask_3", "x_mask_2", "x_Labels")))
    assert not any(map(is_mask_name, ("x", "unmasked", "mask", "labels/x", "x_masked", "masked_x")))
