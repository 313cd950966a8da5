"""Files that name the classes."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.class_file import read_class_file


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
        ("classes.txt", "sky", "names 1 classes; name at least 2"),
        ("classes.txt", "sky\nsky", "names a class twice"),
        ("classes.json", "{", "is no JSON"),
        ("classes.json", "7", "must give each class's value or colour"),
        ("classes.json", '{"a": 1, "b": "red"}', 'gives b the value "red"'),
        ("classes.json", '{"a": 1, "b": [1, 2, 300]}', "gives b the value"),
        ("classes.json", '{"a": 1, "b": true}', "gives b the value true"),
        ("classes.json", '{"a": 1, "b": -1}', "gives b the value -1"),
        ("classes.json", '{"a": 1, "b": [1, 2, 3]}', "mixes values and colours"),
        ("classes.json", '{"a": 1, "b": 1}', "gives two classes one value"),
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
