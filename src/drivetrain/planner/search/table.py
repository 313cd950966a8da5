"""Prints the result of a search."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drivetrain.plan.render_stages import with_unit
from drivetrain.planner.search.options import option_line
from drivetrain.planner.search.result import Row, SearchResult

__all__ = ["print_search"]

_TITLES = ("", "stages", "replicas", "schedule", "batch", "update", "idle", "memory")


def print_search(result: SearchResult, *, console: Console) -> None:
    """A row per layout, what each trades, how sure the order is, and the options of each."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for title in _TITLES:
        table.add_column(title, justify="left" if title == "schedule" else "right", no_wrap=True)
    table.add_column("beside the first", overflow="fold")
    for number, row in enumerate(result.rows, start=1):
        table.add_row(str(number), *_cells(row), row.trades)
    estimated = "" if all(row.is_exact for row in result.rows) else "; ~: estimated"
    table.caption = (
        "batch: micro-batch x accumulation; idle: share of the update in which devices wait; memory: peak "
        f"of the fullest device{estimated}"
    )
    table.caption_justify = "left"
    console.print(table, highlight=False)
    console.print(result.how_sure, highlight=False)
    for number, row in enumerate(result.rows, start=1):
        line = Text.assemble((f"{number}: ", "bold"), option_line(row.fields))
        console.print(line, highlight=False, soft_wrap=True)
    console.print()


def _cells(row: Row) -> tuple[str, ...]:
    layout = row.found.layout
    is_split = layout.devices_per_replica > 1
    devices = "" if layout.stages == layout.devices_per_replica else f" on {layout.devices_per_replica}"
    return (
        f"{layout.stages}{devices}" if is_split else "1",
        str(layout.replicas),
        layout.schedule if is_split else "",
        f"{layout.micro} x {layout.accumulation}",
        _seconds(row.found.seconds),
        f"{100 * row.found.bubble:.1f} %",
        f"{'' if row.is_exact else '~'}{with_unit(row.found.largest_bytes)}B",
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
