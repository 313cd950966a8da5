"""A fingerprint as lines for people."""

from dataclasses import replace

from drivetrain.cli.listing.fingerprint_text import fingerprint_lines
from drivetrain.data.fingerprint.fingerprint import Duplicates
from tests.auto.fingerprints import KINDS, photographs


def test_photographs() -> None:
    assert fingerprint_lines(photographs()) == [
        "samples: 800 train (800 training samples measured)",
        "images: height 200 to 500 (median 375), width 220 to 640 (median 500) pixels, 3 channels of 8 bits",
        "pixels: mean 0.480, 0.450, 0.400, deviation 0.250, 0.240, 0.260",
        "difference from mirror images, in deviations: left-right 0.04, up-down 0.70, turned by 90 degrees "
        "0.60",
        "class  training images",
        "ant    200",
        "bee    200",
        "cat    200",
        "dog    200",
    ]


def test_masks_have_objects_and_shares() -> None:
    lines = fingerprint_lines(KINDS["grey masks"])
    assert "objects: 12 per image, diameter 3 to 90 (median 20) pixels" in lines
    assert [line.split() for line in lines if line.startswith("cell")] == [["cell", "88", "10.00%"]]
    assert any("1 channel of 8 bits" in line for line in lines)


def test_what_should_worry_the_owner_comes_last() -> None:
    worrying = replace(
        photographs(),
        unreadable=("a.jpg", "b.jpg"),
        duplicates=Duplicates(count=1, first=(("train/x.jpg", "val/y.jpg"),)),
        class_counts=(400, 400, 0, 0),
    )
    assert fingerprint_lines(worrying)[-3:] == [
        "cannot be read: 2 of the measured files, such as a.jpg, b.jpg",
        "1 validation image with the same pixels as a training image, such as val/y.jpg and train/x.jpg; "
        "results on them are too good",
        "without training images: cat, dog",
    ]


def test_copies_and_what_was_compared_are_told() -> None:
    copies = Duplicates(count=6, first=(("a.jpg", "b.jpg"),), compared=100)
    assert fingerprint_lines(photographs(copies_in_train=copies))[-2:] == [
        "6 images have an exact copy, such as a.jpg and b.jpg; copies may lie on both sides of the split "
        "into training and validation, and results on them are too good",
        "copies: only 100 of 800 training images were compared",
    ]
    part = Duplicates(count=0, first=(), compared=50, compared_with=60)
    found = photographs(samples={"train": 800, "validation": 90}, duplicates=part)
    assert fingerprint_lines(found)[-1] == (
        "copies: only 50 of 90 validation images were compared with 60 training images"
    )
    none = photographs(copies_in_train=Duplicates(count=0, first=()))
    assert fingerprint_lines(none) == fingerprint_lines(photographs())


def test_long_lists_of_classes_are_cut() -> None:
    many = replace(photographs(), class_names=tuple(f"c{n}" for n in range(50)), class_counts=(2,) * 50)
    assert fingerprint_lines(many)[-1] == "and 20 more classes"
