"""Prints what was found in a folder, and a table of what rules chose for it."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

__all__ = ["print_choices"]


def print_choices(notes: Sequence[str], rows: Sequence[tuple[str, str, str]], *, console: Console) -> None:
    """One row for each chosen option: its name, its value and the reason."""
    for note in notes:
        console.print(note, highlight=False)
    if not rows:
        return
    table = Table("option", "chosen", "because", box=None, padding=(0, 2), pad_edge=False)
    for option, value, reason in rows:
        table.add_row(option, value, reason)
    console.print(table, highlight=False)
    console.print()
