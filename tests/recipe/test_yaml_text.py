"""YAML is read safely, and what is wrong with it is named with its line."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.yaml_text import PlainDumper, YamlDocument, read_yaml_file


def _value(text: str) -> Any:
    document = YamlDocument(text, source="x.yaml")
    assert document.root is not None
    return document.value(document.root)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        ("1.0e-4", 0.0001),
        (".5", 0.5),
        ("-3", -3),
        ("010", 10),
        ("1:30", "1:30"),
        ("1/3", "1/3"),
        ("2024-01-02", "2024-01-02"),
        ("yes", True),
        ("false", False),
        ("null", None),
        ("cuda:1", "cuda:1"),
        ("=", "="),
        ("[1, 2.5, a]", [1, 2.5, "a"]),
    ],
)
def test_plain_values(text: str, value: object) -> None:
    assert _value(text) == value
    assert type(_value(text)) is type(value)


@pytest.mark.parametrize(
    "text", ["1e-4", "010", "1", ".5", "yes", "null", "2024-01-02", "=", "", "a: b", " x", "'"]
)
def test_text_that_looks_like_something_else_survives_writing(text: str) -> None:
    assert _value(yaml.dump({"key": text}, Dumper=PlainDumper)) == {"key": text}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "x.yaml:3: this is not valid YAML"),
        ("a: 1\n\tb: 2\n", "x.yaml:2: this is not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a is given twice, first on line 1"),
        ("a:\n  b: 1\n  b: 2\n", "x.yaml:3: b is given twice, first on line 2"),
        (
            "a: 1\nb: !!python/object/apply:os.system ['true']\n",
            "x.yaml:2: the tag !!python/object/apply:os.system",
        ),
        ("a: !!python/name:os.system\n", "x.yaml:1: the tag !!python/name:os.system is not allowed"),
        ("a: !mine 3\n", "x.yaml:1: the tag !mine is not allowed"),
        ("a: !!binary aGk=\n", "x.yaml:1: the tag !!binary is not allowed"),
        ("? [1, 2]\n: 3\n", "x.yaml:1: a key must be text"),
        ("a: &a [*a]\n", "x.yaml:1: the value contains itself"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: this is not valid YAML"),
        ("a: *b\n", "x.yaml:1: this is not valid YAML"),
        ("a: \x00\n", "x.yaml: this is not valid YAML"),
    ],
)
def test_errors_name_the_line(text: str, part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        _value(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(BadInputError, match="more than 20000 values"):
        _value("\n".join(lines))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(BadInputError, match="nested too deeply"):
        _value("[" * 5000)


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"x\.yaml:1"):
        _value("a: " + "1" * 5000)


def test_merge_takes_mappings_only() -> None:
    document = YamlDocument("a: &a 3\nb:\n  <<: *a\n", source="x.yaml")
    with pytest.raises(BadInputError, match=r"x\.yaml:1"):
        document.merged(document.root.value[1][1])  # type: ignore[union-attr]


def test_files_are_bounded(tmp_path: Path) -> None:
    large, binary, bom = tmp_path / "large.yaml", tmp_path / "binary.yaml", tmp_path / "bom.yaml"
    large.write_text("# " + "x" * (1 << 20))
    binary.write_bytes(b"a: \xff\xfe")
    bom.write_bytes(b"\xef\xbb\xbfa: 1\n")
    with pytest.raises(BadInputError, match="larger than 1 MiB"):
        read_yaml_file(large, source="large.yaml")
    with pytest.raises(BadInputError, match="not UTF-8"):
        read_yaml_file(binary, source="binary.yaml")
    with pytest.raises(BadInputError, match="cannot be read"):
        read_yaml_file(tmp_path / "none.yaml", source="none.yaml")
    document = read_yaml_file(bom, source="bom.yaml")
    assert document.root is not None
    assert document.value(document.root) == {"a": 1}
