"""Lines of a table that fit a width: first cells are cut short, then columns are left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LiveColumn", "laid_out"]

_GAP = 2
_CUT = ".."


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveColumn:
    """A column. With a `rank` it may be left out, the highest rank first; cells may be cut to `least`."""

    title: str
    cells: Sequence[str]
    rank: int | None = None
    least: int | None = None
    side: Literal["left", "right"] = "left"

    @property
    def width(self) -> int:
        """The width of the longest cell."""
        return max(len(cell) for cell in (self.title, *self.cells))

    @property
    def least_width(self) -> int:
        """The width below which the column is of no use."""
        return self.width if self.least is None else min(self.width, max(self.least, len(self.title)))

    @property
    def is_empty(self) -> bool:
        """Whether no cell says anything."""
        return not any(self.cells)


def laid_out(columns: Sequence[LiveColumn], *, width: int) -> list[str]:
    """The title line and a line per row, none longer than `width`; columns without a value are left out."""
    kept = [column for column in columns if not column.is_empty]
    while _least_total(kept) > width and any(column.rank is not None for column in kept):
        kept.remove(max(kept, key=lambda column: -1 if column.rank is None else column.rank))
    widths = _widths(kept, width=width)
    rows = zip(*((column.title, *column.cells) for column in kept), strict=True)
    return [_line(row, kept, widths)[:width] for row in rows]


def _least_total(columns: Sequence[LiveColumn]) -> int:
    return sum(column.least_width for column in columns) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[LiveColumn], *, width: int) -> list[int]:
    """The width of each column; the first ones grow first."""
    widths = [column.least_width for column in columns]
    left = width - _least_total(columns)
    for place, column in enumerate(columns):
        more = max(0, min(left, column.width - widths[place]))
        widths[place] += more
        left -= more
    return widths


def _line(row: Sequence[str], columns: Sequence[LiveColumn], widths: Sequence[int]) -> str:
    cells = [_cut(_printable(cell), width) for cell, width in zip(row, widths, strict=True)]
    aligned = [
        cell.rjust(width) if column.side == "right" else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return (" " * _GAP).join(aligned).rstrip()


def _printable(cell: str) -> str:
    """Names of runs and hosts come from files: no control codes may reach the terminal."""
    return cell if cell.isprintable() else "".join(part if part.isprintable() else "?" for part in cell)


def _cut(cell: str, width: int) -> str:
    """A cell that is too long keeps its beginning."""
    return cell if len(cell) <= width else cell[: max(0, width - len(_CUT))] + _CUT[:width]
