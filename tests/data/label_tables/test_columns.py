"""Columns are found by what they hold; several that may be meant are a question."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.label_tables.columns import find_file_column, find_label_column, find_split_column
from drivetrain.data.label_tables.named_images import NamedImages
from drivetrain.data.label_tables.table import LabelTable

IMAGES = NamedImages(f"{number}.png" for number in range(40))


def table(**columns: list[str]) -> LabelTable:
    count = len(next(iter(columns.values())))
    return LabelTable(path=Path("labels.csv"), columns=columns, lines=[*range(2, count + 2)])


def numbers(count: int = 6, *, of: int | None = None) -> list[str]:
    return [str(number % (of or count)) for number in range(count)]


def label_of(columns: dict[str, list[str]], *, asked: str | None = None) -> str:
    return find_label_column(table(file=numbers(), **columns), taken=("file",), asked=asked)


def test_the_file_column_names_images() -> None:
    files = [f"{number}.png" for number in numbers()]
    assert find_file_column(table(id=numbers(), file=files), IMAGES, asked=None) == "file"
    assert find_file_column(table(id=numbers(), age=numbers(of=3)), IMAGES, asked=None) == "id"
    assert find_file_column(table(name=["x", "y"], label=["a", "b"]), IMAGES, asked=None) is None
    assert find_file_column(table(id=numbers(), file=files), IMAGES, asked="id") == "id"


def test_two_columns_of_images_are_a_question() -> None:
    one, other = numbers(), numbers()[::-1]
    with pytest.raises(BadInputError, match=r"columns one, other of labels\.csv all name images; add --file"):
        find_file_column(table(one=one, other=other), IMAGES, asked=None)
    assert find_file_column(table(one=one, same=one), IMAGES, asked=None) == "one"


def test_a_table_without_a_header() -> None:
    with pytest.raises(BadInputError, match=r"has no header: its first line is 0\.png, cat; put a line"):
        find_file_column(table(**{"0.png": ["1.png"], "cat": ["dog"]}), IMAGES, asked=None)


def test_the_label_column() -> None:
    kinds, ages = ["a", "b"] * 3, numbers(of=3)
    assert label_of({"kind": kinds}) == "kind"
    assert label_of({"age": ages, "Label": kinds}) == "Label"
    assert label_of({"age": ages, "Label": kinds}, asked="age") == "age"
    assert label_of({"label": ["0", "1"] * 3, "class_name": kinds}) == "class_name"
    assert label_of({"note": ["same"] * 6, "kind": kinds}) == "kind"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"kind": ["a", "b"] * 3, "age": numbers(of=3)}, "kind, age; add --label-column NAME, such as --lab"),
        ({"label": ["a", "b"] * 3, "class": numbers(of=3)}, "label, class; add --label-column NAME"),
        ({}, "has no column of their classes; add one"),
        ({"note": ["same"] * 6}, "note has 1 different values in 6 rows"),
    ],
)
def test_no_label_column_is_guessed(columns: dict[str, list[str]], problem: str) -> None:
    with pytest.raises(BadInputError, match=problem):
        label_of(columns)


def test_measured_values_are_no_classes() -> None:
    values = table(file=numbers(40), score=[f"0.{number}" for number in range(40)])
    with pytest.raises(
        BadInputError, match=r"score has 40 different values in 40 rows; .* --label-column sco"
    ):
        find_label_column(values, taken=("file",), asked=None)


def test_decimals_without_repeats_are_no_classes() -> None:
    decimals = [f"{number}.25" for number in range(6)]
    with pytest.raises(BadInputError, match=r"No column .*: weight has 6 different values in 6 rows"):
        label_of({"weight": decimals})
    kinds = ["a", "b"] * 3
    assert label_of({"weight": decimals, "kind": kinds}) == "kind"
    assert label_of({"grade": ["0.5", "1.5"] * 3}) == "grade"
    assert label_of({"row": numbers()}) == "row"


def test_a_column_for_each_class() -> None:
    flags = {
        name: [f"{float(number == place)}" for number in range(6)] for place, name in enumerate("abcdef")
    }
    with pytest.raises(BadInputError, match=r"has a column for each class \(a, b, c, .*; write the name of "):
        label_of(flags)
    with pytest.raises(
        BadInputError, match=r"column for each class \(cat, dog\) with a 1 in the rows of its"
    ):
        label_of({"cat": ["0", "1"] * 3, "dog": ["1", "0"] * 3})
    assert label_of({"ill": ["0", "1"] * 3}) == "ill"
    assert label_of({**flags, "kind": ["x", "y"] * 3}, asked="kind") == "kind"
    assert label_of({**flags, "label": ["x", "y"] * 3}) == "label"


def test_other_names_of_label_columns() -> None:
    kinds, ages = ["a", "b"] * 3, numbers(of=3)
    for name in ("diagnosis", "species", "Label Name"):
        assert label_of({"age": ages, name: kinds}) == name
    assert label_of({"species": ages, "label": kinds}) == "label"


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(
        BadInputError, match=r"--label-column breed is not a column of labels\.csv, which has"
    ):
        label_of({"kind": ["a", "b"] * 3}, asked="breed")
    with pytest.raises(BadInputError, match="--label-column file names the column"):
        label_of({"kind": ["a", "b"] * 3}, asked="file")


def test_the_split_column() -> None:
    for name, cells in {
        "Split": ["train", "Valid", "testing"],
        "data set": ["train", "train", "val"],
        "is_valid": ["True", "false", "0"],
    }.items():
        assert find_split_column(table(**{"file": ["a", "b", "c"], name: cells}), taken=("file",)) == name
    assert find_split_column(table(split=["train", "other"]), taken=()) is None
    assert find_split_column(table(kind=["train", "test"]), taken=()) is None
