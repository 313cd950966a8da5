"""Pictures of masks, for people to look at."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from drivetrain.data.source import IGNORED
from drivetrain.pictures import overlays
from drivetrain.pictures.overlays import (
    ERROR_COLOURS,
    class_colours,
    displayable,
    overlay_sheet,
    paint_classes,
    paint_errors,
    tinted,
)

TRUTH = np.zeros((20, 30), np.uint8)
TRUTH[5:15, 5:15] = 1
PREDICTION = np.roll(TRUTH, 3, axis=1)
GREY = np.full((20, 30, 3), 100, np.uint8)


def _opened(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(BytesIO(png)).convert("RGB"))


def _has_colour(picture: NDArray[np.uint8], colour: tuple[int, int, int] | None) -> bool:
    return bool((picture == np.array(colour)).all(axis=2).any())


def test_classes_are_tinted_and_outlined_and_the_first_is_left_alone() -> None:
    painted = paint_classes(GREY, TRUTH, class_names=("a", "b"))
    assert (painted[TRUTH == 0] == 100).all()
    assert painted[5, 5].tolist() == list(class_colours(("a", "b"))[1] or ())
    inside = painted[10, 10].tolist()
    assert inside != [100, 100, 100]
    assert inside != painted[5, 5].tolist()


@pytest.mark.parametrize("tissue", [(200, 70, 30), (30, 70, 200), (226, 10, 64)])
def test_over_an_image_of_any_colour_a_class_has_the_colour_of_the_legend(
    tissue: tuple[int, int, int],
) -> None:
    image = np.full((20, 30, 3), tissue, np.uint8)
    assert image[0, 0].sum() == GREY[0, 0].sum()
    painted = paint_classes(image, TRUTH, class_names=("a", "b"))
    assert np.array_equal(painted, paint_classes(GREY, TRUTH, class_names=("a", "b")))


@pytest.mark.parametrize("grey", [0, 100, 255])
def test_tints_of_different_classes_stay_apart_over_every_grey(grey: int) -> None:
    image, names = np.full((9, 9, 3), grey, np.uint8), [str(number) for number in range(6)]
    inside = [
        tuple(paint_classes(image, np.full((9, 9), index), class_names=names)[4, 4]) for index in range(6)
    ]
    assert len(set(inside)) == 6
    assert inside[0] == (grey, grey, grey)


def test_an_outline_is_two_pixels_in_just_the_colour() -> None:
    painted = paint_classes(GREY, TRUTH, class_names=("a", "b"))
    full = (painted == np.array(class_colours(("a", "b"))[1])).all(axis=2)
    inner = np.zeros_like(full)
    inner[7:13, 7:13] = True
    assert np.array_equal(full, (TRUTH == 1) & ~inner)


def test_the_legend_shows_outline_and_tint_also_of_a_class_that_is_not_there() -> None:
    names = ("back", "front", "other")
    sheet = _opened(overlay_sheet([GREY], [None], [np.zeros_like(TRUTH)], names=["x"], class_names=names))
    for colour in class_colours(names)[1:]:
        assert colour is not None
        assert _has_colour(sheet, colour)
        assert _has_colour(sheet, tinted(colour))
    middle = np.full((9, 9, 3), 128, np.uint8)
    inside = paint_classes(middle, np.ones((9, 9), np.uint8), class_names=names)[4, 4]
    assert tuple(inside) == tinted(class_colours(names)[1] or (0, 0, 0))
    assert tinted((0, 158, 115)) != (0, 158, 115)


def test_colours_are_distinct_for_any_number_of_classes() -> None:
    colours = class_colours([str(number) for number in range(40)])
    assert colours[0] is None
    assert len(set(colours)) == 40
    assert class_colours(("a",)) == [None]
    assert not set(class_colours("abcdef")) & set(ERROR_COLOURS)


def test_false_and_missed_pixels_of_two_classes_are_told_apart() -> None:
    errors = paint_errors(GREY, TRUTH, PREDICTION, num_classes=2).astype(int)
    false, missed = ERROR_COLOURS
    assert abs(errors[10, 16] - false).max() <= 20
    assert abs(errors[10, 6] - missed).max() <= 20
    assert errors[10, 10].tolist() == errors[0, 0].tolist() == [55, 55, 55]


def test_of_more_classes_every_mistake_is_alike() -> None:
    errors = paint_errors(GREY, TRUTH * 2, PREDICTION, num_classes=3)
    wrong = errors[PREDICTION != TRUTH * 2]
    assert (wrong == wrong[0]).all()


def test_ignored_pixels_are_no_mistakes() -> None:
    truth = np.where(PREDICTION != TRUTH, np.uint8(IGNORED), TRUTH)
    errors = paint_errors(GREY, truth, PREDICTION, num_classes=2)
    assert (errors == errors[0, 0]).all()
    assert not (paint_errors(GREY, TRUTH, PREDICTION, num_classes=2) == errors[0, 0]).all()


@pytest.mark.parametrize(
    ("prediction", "class_names", "caption"),
    [
        (PREDICTION, ("back", "front"), "prediction: hard Dice of front 0.700"),
        (PREDICTION, ("back", "front", "other"), "prediction: hard Dice of the foreground 0.700"),
        (PREDICTION, ("cell", "membrane"), "prediction: hard Dice of cell 0.940"),
        (TRUTH * 0, ("back", "front"), "prediction: hard Dice of front 0.000"),
    ],
)
def test_captions_name_the_class_whose_dice_they_give(
    monkeypatch: pytest.MonkeyPatch,
    prediction: NDArray[np.uint8],
    class_names: tuple[str, ...],
    caption: str,
) -> None:
    captions: list[str] = []

    def sheet(rows: Any, **_: Any) -> bytes:
        captions.extend(panel.caption for panel in rows[0])
        return b""

    monkeypatch.setattr(overlays, "sheet_png", sheet)
    overlay_sheet([GREY], [TRUTH], [prediction], names=["a"], class_names=class_names)
    overlay_sheet([GREY], [TRUTH * 0], [TRUTH * 0], names=["a"], class_names=("back", "front"))
    assert captions[2] == caption
    assert captions[6] == "prediction: correctly no front"


def test_images_of_any_channels_and_range_can_be_shown() -> None:
    assert displayable(np.full((4, 5, 1), 7, np.uint8))[0, 0].tolist() == [7, 7, 7]
    dark = np.array([[[3], [18]], [[8], [3]]], np.uint8)
    assert displayable(dark)[..., 0].tolist() == [[0, 255], [85, 0]]
    assert displayable(dark * 10)[..., 0].tolist() == [[30, 180], [80, 30]]
    shown = displayable(np.linspace(-3, 5, 20, dtype=np.float32).reshape(4, 5, 1))
    assert (shown.min(), shown.max()) == (0, 255)
    assert displayable(np.zeros((4, 5, 4), np.uint8)).shape == (4, 5, 3)
    assert displayable(np.ones((4, 5, 2), np.float32)).max() == 0


def test_a_sheet_shows_four_panels_a_row_and_two_without_a_truth() -> None:
    images = [GREY[..., :1]] * 2
    known = _opened(
        overlay_sheet(
            images,
            [TRUTH] * 2,
            [PREDICTION] * 2,
            names=["a", "b"],
            class_names=("back", "front"),
            title="title",
            sides=(60, 60),
        )
    )
    unknown = _opened(
        overlay_sheet(
            images[:1], [None], [PREDICTION], names=["a"], class_names=("back", "front"), sides=(60, 60)
        )
    )
    assert known.shape[1] >= 4 * 60
    assert known.shape[0] > 2 * 40
    assert _has_colour(known, class_colours(("a", "b"))[1])
    assert all(_has_colour(known, colour) for colour in ERROR_COLOURS)
    assert _has_colour(unknown, class_colours(("a", "b"))[1])
    assert not any(_has_colour(unknown, colour) for colour in ERROR_COLOURS)


@pytest.mark.parametrize("size", [(1, 1), (3, 900), (1500, 40)])
def test_sizes_of_every_kind_and_long_names(size: tuple[int, int]) -> None:
    image, mask = np.zeros((*size, 3), np.uint8), np.zeros(size, np.uint8)
    names = tuple(f"class number {index} of many" for index in range(30))
    sheet = _opened(overlay_sheet([image], [mask], [mask], names=["long name " * 30], class_names=names))
    assert max(sheet.shape) < 5000
    assert sheet.shape[1] > sheet.shape[0] or size[0] > size[1]


def test_a_class_called_by_a_colour_is_painted_in_it() -> None:
    assert class_colours(("#000000", "#0000ff", "cell", "#00ff00")) == [
        None,
        (0, 0, 255),
        class_colours("abcd")[2],
        (0, 255, 0),
    ]


def test_an_image_is_shown_in_the_size_of_its_masks() -> None:
    """Scaled once, from its own pixels: as if it had come in that size, where it is plain."""
    wide = np.full((10, 90, 3), 100, np.uint8)
    given = {"names": ["x"], "class_names": ("a", "b")}
    scaled = overlay_sheet([wide], [TRUTH], [PREDICTION], **given)  # type: ignore[arg-type]
    assert np.array_equal(_opened(scaled), _opened(overlay_sheet([GREY], [TRUTH], [PREDICTION], **given)))  # type: ignore[arg-type]
