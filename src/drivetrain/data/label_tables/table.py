"""Reads a table of labels: a CSV or TSV file with a header."""

import csv
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import first_names

__all__ = ["TABLE_SUFFIXES", "LabelTable", "read_label_table", "tables_in"]

TABLE_SUFFIXES = (".csv", ".tsv")
_DELIMITERS = ",;\t|"
# Masks are sometimes written into a cell, and are longer than the 131,072 characters that csv allows.
_LONGEST_CELL = 2**27


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTable:
    """A table's columns by name, and the line of the file where each row stands."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def require_column(self, name: str, *, option: str) -> None:
        """Refuses the name of a column that is not there."""
        if name not in self.columns:
            names = [*self.columns]
            raise BadInputError(
                f"{option} {name} is not a column of {self.path}, which has {first_names(names)}; "
                f"{option} {names[0]} names one of them."
            )


def tables_in(folder: Path) -> list[Path]:
    """The CSV and TSV files that lie in a folder, sorted."""
    names = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted(path for path in names if path.suffix.lower() in TABLE_SUFFIXES and path.is_file())


def read_label_table(path: Path, *, most_rows: int | None = None) -> LabelTable:
    """A table, or its first rows."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _read(path, file, most_rows=most_rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInputError(f"{path} cannot be read ({reason}); save it as CSV in UTF-8.") from error


def _read(path: Path, file: TextIO, *, most_rows: int | None) -> LabelTable:
    header = file.readline()
    delimiter = max(_DELIMITERS, key=header.count)
    file.seek(0)
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    names = _column_names(path, next(reader, []))
    columns: dict[str, list[str]] = {name: [] for name in names}
    lines: list[int] = []
    for row in islice(reader, most_rows):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(names):
            raise BadInputError(
                f"{path} line {reader.line_num} has {len(row)} cells, but the header has {len(names)}; give "
                "every row a cell for each column."
            )
        lines.append(reader.line_num)
        for cells, cell in zip(columns.values(), row, strict=True):
            cells.append(cell.strip())
    return LabelTable(path=path, columns=columns, lines=lines)


def _column_names(path: Path, header: list[str]) -> list[str]:
    """The names in the header; a column without one, such as a counter of rows, is called by its place."""
    if not any(cell.strip() for cell in header):
        raise BadInputError(f"{path} is empty; its first line must name the columns, such as file,label.")
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(header, start=1)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"{path} has two columns called {twice}; rename one of them.")
    return names
