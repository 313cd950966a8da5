"""Tables of plain text for terminals and files, cut to the width where one is given."""

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


# Tables of plain text that fit a width: less important columns are left out, and no word is broken.


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A title and a cell for each row; of columns with a `rank` the highest one is left out first."""

    title: str
    cells: Sequence[str]
    rank: int | None = None

    @property
    def least_width(self) -> int:
        """That of the longest word."""
        return max((len(word) for cell in (self.title, *self.cells) for word in cell.split()), default=1)

    @property
    def width(self) -> int:
        """That of the longest cell."""
        return max(len(cell) for cell in (self.title, *self.cells))


def fitted_table(columns: Sequence[Column], *, width: int) -> list[str]:
    """The lines of a table; cells of several words may take several lines."""
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
    """Whether no word needs to be broken."""
    return sum(column.least_width for column in columns) + _GAP * (len(columns) - 1) <= width


def without_folders(column: Column) -> Column:
    """Paths by their names alone, where these tell them apart."""
    names = [cell.rstrip("/").rsplit("/", 1)[-1] for cell in column.cells]
    return replace(column, cells=names) if len(set(names)) == len(names) else column


def _widths(columns: Sequence[Column], *, width: int) -> list[int]:
    """Each has room for its longest word; the first ones get what is left."""
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
