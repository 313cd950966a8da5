"""How masks write classes is found from what they hold."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.coding import (
    MaskCoding,
    NamedClasses,
    OutsideClassesError,
    find_coding,
    object_coding,
    read_class_file,
)
from drivetrain.data.masks.mask_pixels import decode_mask, find_values

RED, BLACK, WHITE = (255, 0, 0), (0, 0, 0), (255, 255, 255)


def grey(*values: int, dtype: Any = np.uint8) -> Image.Image:
    return Image.fromarray(np.array([values], dtype=dtype))


def colours(*values: tuple[int, int, int]) -> Image.Image:
    return Image.fromarray(np.array([values], dtype=np.uint8))


def palette(values: list[int], shown: list[tuple[int, int, int]]) -> Image.Image:
    image = Image.frombytes("P", (len(values), 1), bytes(values))
    image.putpalette([part for colour in shown for part in colour])
    return image


def coding_of(
    *images: Image.Image, num_classes: int | None = None, named: NamedClasses | None = None
) -> MaskCoding:
    found = {f"mask{number}.png": find_values(decode_mask(image)) for number, image in enumerate(images)}
    return find_coding(found, named=named, num_classes=num_classes)


def names(*words: str, values: tuple[tuple[int, ...], ...] | None = None) -> NamedClasses:
    return NamedClasses(Path("classes.json"), words, values)


def read(coding: MaskCoding, image: Image.Image) -> list[int]:
    classes: NDArray[np.uint8] = coding.classes_in(decode_mask(image))
    assert classes.dtype == np.uint8
    return [int(value) for value in classes[0]]


@pytest.mark.parametrize(
    ("images", "num_classes", "values"),
    [
        ([grey(0, 255)], None, (0, 255)),
        ([grey(0, 0), grey(255, 255)], None, (0, 255)),
        ([grey(0)], None, (0, 255)),
        ([grey(0, 1)], None, (0, 1)),
        ([grey(1)], None, (0, 1)),
        ([grey(0, 1, 2)], None, (0, 1, 2)),
        ([grey(0, 128, 255)], None, (0, 128, 255)),
        ([grey(1, 2, 3)], None, (1, 2, 3)),
        ([grey(0, 1), grey(2, 9)], None, (0, 1, 2, 9)),
        ([grey(0, 1)], 4, (0, 1, 2, 3)),
        ([grey(0, 255)], 2, (0, 255)),
        ([grey(0, 128, 255)], 3, (0, 128, 255)),
        ([grey(0, 3, dtype=np.uint16)], None, (0, 3)),
        ([grey(0, 700, dtype=np.uint16)], None, (0, 700)),
        ([grey(0, 3, dtype=np.int32)], None, (0, 3)),
        ([grey(0, 3, dtype=np.float32)], None, (0, 3)),
        ([grey(0, 255).convert("1")], None, (0, 255)),
        ([grey(0, 255).convert("1"), grey(0, 255)], None, (0, 255)),
        ([grey(0, 5).convert("LA")], None, (0, 5)),
        ([colours(BLACK, WHITE)], None, (0, 255)),
        ([colours(BLACK, WHITE), grey(0, 255)], None, (0, 255)),
        ([colours((0, 0, 0), (1, 1, 1), (2, 2, 2)).convert("RGBA")], None, (0, 1, 2)),
    ],
)
def test_grey_values(images: list[Image.Image], num_classes: int | None, values: tuple[int, ...]) -> None:
    coding = coding_of(*images, num_classes=num_classes)
    assert coding.mask_values == tuple((value,) for value in values)
    for image in images:
        shown = np.asarray(image.convert("RGB") if image.mode in ("RGBA", "LA", "1") else image)
        plain = shown.reshape(-1, 3)[:, 0] if shown.ndim == 3 else shown.reshape(-1)
        assert read(coding, image) == [values.index(int(value)) for value in plain]


def test_names() -> None:
    assert coding_of(grey(0, 255)).class_names == ("background", "foreground")
    assert coding_of(grey(7, 9)).class_names == ("7", "9")
    assert coding_of(grey(0, 1, 2)).class_names == ("0", "1", "2")
    assert coding_of(colours(BLACK, RED)).class_names == ("background", "foreground")
    assert coding_of(colours(BLACK, RED, WHITE)).class_names == ("#000000", "#ff0000", "#ffffff")


def test_colours_are_sorted_with_black_first() -> None:
    images = [colours(WHITE, RED), colours((0, 9, 0), BLACK)]
    coding = coding_of(*images)
    assert coding.mask_values == (BLACK, (0, 9, 0), RED, WHITE)
    assert [read(coding, image) for image in images] == [[3, 2], [1, 0]]
    assert coding_of(*images[::-1]) == coding
    assert read(coding, grey(255, 0)) == [3, 0]


def test_palettes_count_by_index_where_they_agree_and_by_colour_where_not() -> None:
    same = [palette([0, 2, 1], [BLACK, RED, WHITE]), palette([2, 2], [BLACK, RED, WHITE])]
    assert coding_of(*same).mask_values == ((0,), (1,), (2,))
    assert read(coding_of(*same), same[0]) == [0, 2, 1]
    swapped = [palette([0, 1], [BLACK, RED]), palette([0, 1], [RED, BLACK])]
    coding = coding_of(*swapped)
    assert coding.mask_values == (BLACK, RED)
    assert [read(coding, image) for image in swapped] == [[0, 1], [1, 0]]
    mixed = [palette([0, 1], [BLACK, WHITE]), grey(0, 255)]
    assert coding_of(*mixed).mask_values == ((0,), (255,))
    assert [read(coding_of(*mixed), image) for image in mixed] == [[0, 1], [0, 1]]


def test_named_classes() -> None:
    coding = coding_of(grey(7, 3), named=names("a", "b", values=((7,), (3,))))
    assert (coding.class_names, read(coding, grey(7, 3))) == (("a", "b"), [0, 1])
    assert coding_of(grey(0, 255), named=names("a", "b")).mask_values == ((0,), (255,))
    assert coding_of(grey(0, 2), named=names("a", "b", "c")).mask_values == ((0,), (1,), (2,))
    coding = coding_of(colours(RED, BLACK), named=names("x", "y", values=(RED, BLACK)))
    assert read(coding, colours(RED, BLACK)) == [0, 1]
    coding = coding_of(colours(WHITE, BLACK), named=names("x", "y", values=((255,), (0,))))
    assert read(coding, colours(WHITE, BLACK)) == [0, 1]
    reds = [palette([0, 1], [BLACK, RED]), palette([0, 1], [RED, BLACK])]
    coding = coding_of(*reds, named=names("x", "y", values=((0,), (1,))))
    assert [read(coding, image) for image in reds] == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("images", "options", "words"),
    [
        ([grey(7, 7)], {}, "Every pixel of all masks has the value 7"),
        ([grey(*range(100))], {}, "100 different values, most of them in mask0.png"),
        ([colours(*[(value, 0, 0) for value in range(90)])], {}, "90 different colours"),
        ([grey(0, 1)], {"num_classes": 1}, "--num-classes 2 works"),
        ([grey(0, 1)], {"num_classes": 300}, "--num-classes 300 is out of range"),
        ([colours(BLACK, RED)], {"num_classes": 3}, "--num-classes 3 does not match the 2 colours"),
        (
            [grey(0, 1)],
            {"num_classes": 3, "named": names("a", "b")},
            "does not match the 2 classes in classes.json",
        ),
        ([colours(BLACK, RED)], {"named": names("a", "b")}, "does not say which colour each class has"),
        (
            [colours(BLACK, RED), grey(0, 700, dtype=np.uint16)],
            {},
            "mask1.png contains the grey value 700, but other",
        ),
    ],
)
def test_what_cannot_be_classes(images: list[Image.Image], options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        coding_of(*images, **options)


def test_a_value_outside_the_classes() -> None:
    coding = coding_of(grey(0, 1, 7), num_classes=3)
    assert coding.mask_values == ((0,), (1,), (2,))
    assert coding.outside(find_values(decode_mask(grey(0, 1, 7)))) == 7
    assert coding.outside(find_values(decode_mask(grey(0, 2)))) is None
    assert coding.absent([find_values(decode_mask(grey(0, 1, 7)))]) == ["2"]
    with pytest.raises(OutsideClassesError, match="the value 7, which is none of the classes"):
        coding.classes_in(decode_mask(grey(0, 1, 7)))
    coding = coding_of(colours(BLACK, RED), named=names("x", "y", values=(BLACK, WHITE)))
    with pytest.raises(OutsideClassesError, match=r"the colour \[255, 0, 0\]"):
        coding.classes_in(decode_mask(colours(BLACK, RED)))


def test_masks_of_single_objects() -> None:
    coding = object_coding(None, num_classes=None)
    assert (coding.class_names, coding.mask_values) == (("background", "foreground"), ((0,), (255,)))
    assert read(coding, grey(0, 3, 255)) == [0, 1, 1]
    assert read(coding, colours(BLACK, RED)) == [0, 1]
    assert read(coding, palette([0, 1], [RED, BLACK])) == [0, 1]
    assert object_coding(names("tissue", "cell"), num_classes=2).class_names == ("tissue", "cell")
    with pytest.raises(BadInputError, match="--num-classes 3 asks for 3 classes"):
        object_coding(None, num_classes=3)


def test_jpeg_is_cut_at_the_middle() -> None:
    mask = np.zeros((32, 32), dtype=np.uint8)
    mask[5:20, 7:29] = 255
    content = BytesIO()
    Image.fromarray(mask).save(content, "JPEG", quality=60)
    image = Image.open(content)
    found = find_values(decode_mask(image))
    assert (found.kind, found.values, found.is_lossy_grey) == ("jpeg", (0, 255), False)
    coding = find_coding({"a.jpg": found}, named=None, num_classes=None)
    assert np.array_equal(coding.classes_in(decode_mask(image)), mask // 255)


def test_none(tmp_path: Path) -> None:
    assert read_class_file(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "text", "names", "values"),
    [
        ("classes.txt", "sky\n\n  sea \n", ("sky", "sea"), None),
        ("classes.json", '["sky", "sea"]', ("sky", "sea"), None),
        ("classes.json", '{"sky": 7, "sea": 0}', ("sky", "sea"), ((7,), (0,))),
        ("classes.json", '{"sky": [0, 0, 255], "sea": [1, 2, 3]}', ("sky", "sea"), ((0, 0, 255), (1, 2, 3))),
    ],
)
def test_names_and_values(
    tmp_path: Path, name: str, text: str, names: tuple[str, ...], values: tuple[tuple[int, ...], ...] | None
) -> None:
    (tmp_path / name).write_text(text)
    classes = read_class_file(tmp_path)
    assert classes is not None
    assert (classes.names, classes.values) == (names, values)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("classes.txt", "sky", "names 1 classes; name 2 to 256 classes"),
        ("classes.txt", "sky\nsky", "names a class twice"),
        ("classes.json", "{", "is not valid JSON"),
        ("classes.json", "7", "must give the value or colour of each class"),
        ("classes.json", '{"a": 1, "b": "red"}', 'gives class b the value "red"'),
        ("classes.json", '{"a": 1, "b": [1, 2, 300]}', "gives class b the value"),
        ("classes.json", '{"a": 1, "b": true}', "gives class b the value true"),
        ("classes.json", '{"a": 1, "b": -1}', "gives class b the value -1"),
        ("classes.json", '{"a": 1, "b": [1, 2, 3]}', "mixes grey values and colours"),
        ("classes.json", '{"a": 1, "b": 1}', "gives two classes the same value"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInputError, match=words):
        read_class_file(tmp_path)


def test_two_files_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match="save it as UTF-8"):
        read_class_file(tmp_path)
    (tmp_path / "classes.json").write_text("{}")
    with pytest.raises(BadInputError, match=r"both classes\.txt and classes\.json"):
        read_class_file(tmp_path)
