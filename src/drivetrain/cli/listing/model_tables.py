"""The tables of `drivetrain models`, and their JSON."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from drivetrain.models.summary import LayerRow, ModelTotals


def layer_table(rows: "list[LayerRow]") -> "Table":
    table = new_table("layer", "kind", "output", "parameters", "FLOPs", right=("parameters", "FLOPs"))
    for row in rows:
        size = (str(row.parameters), _format_flops(row.flops))
        table.add_row(row.name, row.kind, format_shape(row.output_shape), *size)
    return table


def totals_line(totals: "ModelTotals") -> str:
    return (
        f"total: {totals.parameters} parameters, {totals.trainable} trainable; "
        f"{totals.buffers} running statistics; {_format_flops(totals.flops)} FLOPs per image"
    )


def new_table(*headers: str, right: tuple[str, ...]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        # A truncated name could not be copied, so it wraps to the next line on a narrow terminal.
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    return table


def print_table(table: "Table", *, last_lines: Sequence[str] = ()) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    console.print(table)
    for line in last_lines:
        console.print(line, soft_wrap=True)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _format_flops(flops: int) -> str:
    """Three digits and a unit, such as 4.72 M; numbers below 1000 have no unit."""
    value = float(flops)
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} T"
