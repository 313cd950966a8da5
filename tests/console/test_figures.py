"""The scores of a segmentation as people read them."""

import math

import pytest

from drivetrain.console.figures import plain_numbers, rounded_speed, score_lines, score_table, speed_text

TWO = {
    "loss": 0.5,
    "dice": 0.75,
    "iou": 0.625,
    "pixel_accuracy": 0.9,
    "foreground_soft_dice": 0.625,
    "soft_dice_cell": 0.625,
    "soft_dice_back": 0.875,
    "iou_cell": 0.5,
    "iou_back": 0.75,
}
MANY = {"dice": 0.5, "foreground_soft_dice": 0.375, **{f"soft_dice_{n}": n / 16 for n in range(12, 0, -1)}}


def test_every_class_stands_before_the_mean_which_is_called_so() -> None:
    assert score_lines(TWO) == [
        "soft Dice: cell 0.6250, back 0.8750; mean over classes 0.7500",
        "IoU: cell 0.5000, back 0.7500; mean over classes 0.6250",
    ]
    assert score_table(TWO) == [
        ["class", "soft Dice", "IoU"],
        ["cell", "0.6250", "0.5000"],
        ["back", "0.8750", "0.7500"],
        ["mean over classes", "0.7500", "0.6250"],
    ]
    assert plain_numbers(TWO) == {"loss": 0.5, "pixel_accuracy": 0.9}


def test_of_many_classes_a_line_has_the_lowest_and_the_table_all() -> None:
    (line,) = score_lines(MANY)
    assert line == (
        "soft Dice: mean over foreground classes 0.3750, mean over classes 0.5000; "
        "lowest of 12 classes: class 1 0.0625, class 2 0.1250, class 3 0.1875"
    )
    assert len(score_table(MANY)) == 1 + 12 + 2


def test_runs_of_an_older_version_have_means_alone_and_classifiers_nothing() -> None:
    assert score_lines({"loss": 0.5, "dice": 0.75}) == ["soft Dice: mean over classes 0.7500"]
    assert score_lines({"loss": 0.5, "accuracy": 0.75}) == []
    assert score_table({"accuracy": 0.75}) == []
    assert plain_numbers({"loss": 0.5, "accuracy": 0.75}) == {"loss": 0.5, "accuracy": 0.75}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (6966.4, "6966"),
        (10.4, "10"),
        (9.97, "10"),
        (9.94, "9.9"),
        (2.0, "2.0"),
        (0.43, "0.43"),
        (0.0345, "0.035"),
        (0.0, "0"),
        (math.nan, "nan"),
    ],
)
def test_two_significant_digits_below_10(value: float, text: str) -> None:
    assert speed_text(value) == text


@pytest.mark.parametrize(("value", "kept"), [(6966.44, 6966.4), (9.8765, 9.88), (0.03456, 0.0346)])
def test_what_files_keep_of_a_small_one(value: float, kept: float) -> None:
    assert rounded_speed(value) == kept
