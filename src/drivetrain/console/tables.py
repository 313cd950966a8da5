"""Plain-text tables for terminals and files, optionally fitted to a width."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

__all__ = ["Column", "fits", "fitted_table", "text_table", "without_folders"]

_GAP = 2


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row, the columns aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. Columns with a `rank` may be dropped, the highest rank first."""

    title: str
    cells: Sequence[str]
    rank: int | None = None

    @property
    def least_width(self) -> int:
        """The width of the longest word."""
        return max((len(word) for cell in (self.title, *self.cells) for word in cell.split()), default=1)

    @property
    def width(self) -> int:
        """The width of the longest cell."""
        return max(len(cell) for cell in (self.title, *self.cells))


def fitted_table(columns: Sequence[Column], *, width: int) -> list[str]:
    """The lines of a table that fits a width: columns with a rank are dropped, cells wrap between words."""
    kept = list(columns)
    while not fits(kept, width=width):
        dropped = max(kept, key=lambda column: -1 if column.rank is None else column.rank)
        if dropped.rank is None:
            break
        kept.remove(dropped)
    widths = _widths(kept, width=width)
    rows = zip(*((column.title, *column.cells) for column in kept), strict=True)
    return [line for row in rows for line in _lines(row, widths)]


def fits(columns: Sequence[Column], *, width: int) -> bool:
    """Whether the columns fit the width without breaking a word."""
    return sum(column.least_width for column in columns) + _GAP * (len(columns) - 1) <= width


def without_folders(column: Column) -> Column:
    """The column with file names instead of paths, if the names are unique."""
    names = [cell.rstrip("/").rsplit("/", 1)[-1] for cell in column.cells]
    return replace(column, cells=names) if len(set(names)) == len(names) else column


def _widths(columns: Sequence[Column], *, width: int) -> list[int]:
    """The width of each column: its longest word; the remaining space goes to the first columns."""
    widths = [column.least_width for column in columns]
    left = width - sum(widths) - _GAP * (len(columns) - 1)
    for place, column in enumerate(columns):
        more = max(0, min(left, column.width - widths[place]))
        widths[place] += more
        left -= more
    return widths


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [
        wrap(cell, room, break_long_words=False, break_on_hyphens=False) or [""]
        for cell, room in zip(row, widths, strict=True)
    ]
    return [
        (" " * _GAP)
        .join(
            (cell[line] if line < len(cell) else "").ljust(room)
            for cell, room in zip(cells, widths, strict=True)
        )
        .rstrip()
        for line in range(max(map(len, cells)))
    ]
