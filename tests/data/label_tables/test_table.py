"""Tables are read whatever separates their cells."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.label_tables.table import read_label_table, tables_in
from tests.data.folders import write_table


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    lines = ["\ufefffile,label", '"a, b.png", cat ', "", "c.png,dog"]
    text = "\n".join(line.replace(",", separator, 1) if "b.png" not in line else line for line in lines)
    text = text.replace('"a, b.png", cat ', f'"a{separator} b.png"{separator} cat ')
    path = tmp_path / "labels.csv"
    path.write_text(text + "\n", encoding="utf-8")
    table = read_label_table(path)
    assert table.columns == {"file": [f"a{separator} b.png", "c.png"], "label": ["cat", "dog"]}
    assert table.lines == [2, 4]
    assert len(read_label_table(path, most_rows=1)) == 1


def test_a_column_without_a_name(tmp_path: Path) -> None:
    table = read_label_table(write_table(tmp_path / "a.csv", ",file", "0,a.png"))
    assert table.columns == {"column 1": ["0"], "file": ["a.png"]}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ((" ",), r"a\.csv is empty; its first line must name the columns"),
        (("file,file", "a,b"), "has two columns called file; rename one"),
        (("file,label", "a,b", "c"), "line 3 has 1 cells, but the header has 2"),
        (("file,label", '"a,b'), "cannot be read"),
    ],
)
def test_broken_tables(tmp_path: Path, lines: tuple[str, ...], problem: str) -> None:
    with pytest.raises(BadInputError, match=problem):
        read_label_table(write_table(tmp_path / "a.csv", *lines))


def test_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("file,label\na.png,Käfer\n".encode("latin-1"))
    with pytest.raises(BadInputError, match="save it as CSV in UTF-8"):
        read_label_table(tmp_path / "a.csv")


def test_tables_in_a_folder(tmp_path: Path) -> None:
    for name in ("b.CSV", "a.tsv", ".hidden.csv", "c.txt", "below/d.csv"):
        write_table(tmp_path / name, "file,label")
    assert [path.name for path in tables_in(tmp_path)] == ["a.tsv", "b.CSV"]
