"""Shows snapshots: once, one after the other in a pipe, or in place on the screen."""

import json
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from drivetrain.monitor.snapshot import Snapshot
from drivetrain.monitor.snapshot_json import snapshot_as_json
from drivetrain.monitor.tables import Line, snapshot_lines

__all__ = ["plain_text", "show_in_place", "show_once", "styled_lines", "write_each"]

# A pipe has no width; whatever reads it should get all columns.
_WIDTH_OF_A_PIPE = 240
_STYLES = {
    "heading": "bold",
    "titles": "bold",
    "device": "cyan",
    "ours": "green",
    "other": "",
    "stale": "yellow",
    "gone": "red",
    "note": "dim",
}
Take = Callable[[], Snapshot]


def plain_text(snapshot: Snapshot, *, width: int = _WIDTH_OF_A_PIPE) -> str:
    """The tables without colours."""
    return "".join(f"{line.text}\n" for line in snapshot_lines(snapshot, width=width))


def show_once(snapshot: Snapshot, out: TextIO) -> None:
    """Prints the tables, in colours on a terminal."""
    if not out.isatty():
        out.write(plain_text(snapshot))
        return
    console = Console(file=out, highlight=False)
    lines = snapshot_lines(snapshot, width=console.width)
    console.print(styled_lines(lines), no_wrap=True, crop=True)


def write_each(take: Take, out: TextIO, *, as_json: bool, interval_s: float) -> None:
    """Writes one snapshot after the other, JSON on one line each, until the reader or the user ends it."""
    while True:
        snapshot = take()
        text = f"{json.dumps(snapshot_as_json(snapshot))}\n" if as_json else f"{plain_text(snapshot)}\n"
        out.write(text)
        out.flush()
        time.sleep(interval_s)


def show_in_place(take: Take, *, interval_s: float) -> None:
    """Shows the tables on the whole screen, anew at every interval, until Ctrl-C."""
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            snapshot = take()
            lines = snapshot_lines(snapshot, width=console.width)
            live.update(styled_lines(lines, height=console.height), refresh=True)
            time.sleep(interval_s)


def styled_lines(lines: list[Line], *, height: int | None = None) -> Text:
    """Lines in their colours; if they are too many for the screen, the last one says how many are missing."""
    shown = lines
    if height is not None and len(lines) > height:
        missing = len(lines) - height + 1
        shown = [*lines[: height - 1], Line(f"{missing} more lines; --once prints all", "note")]
    return Text("\n", no_wrap=True, overflow="crop").join(
        Text(line.text, style=_STYLES[line.kind]) for line in shown
    )
