"""`drivetrain runs`: the runs there are; with several named, or a cross-validation, how they compare."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from drivetrain.errors import BadInputError
from drivetrain.run.directory import DEFAULT_PARENT, open_run
from drivetrain.run.listing import describe_run, find_runs, folds_of, recipe_differences

_WIDTH_OF_A_PIPE = 160
_COLUMNS = {
    "run": "run",
    "status": "status",
    "update": "update",
    "training_loss": "loss",
    "metric": "metric",
    "validation": "validation",
    "best_validation": "best",
    "elapsed_seconds": "seconds",
    "images_per_second": "images/s",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs, or cross-validations, to compare (default: list all)"
    )
    parser.add_argument("--runs-dir", default=str(DEFAULT_PARENT), metavar="DIR", help="folder of the runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    named = [run for path in args.runs for run in folds_of(Path(path)) or [open_run(path)]]
    chosen = named or find_runs(Path(args.runs_dir))
    if not chosen and not Path(args.runs_dir).is_dir() and args.runs_dir != str(DEFAULT_PARENT):
        raise BadInputError(
            f"--runs-dir {args.runs_dir} does not exist; the default is --runs-dir {DEFAULT_PARENT}."
        )
    rows = [describe_run(found) for found in chosen]
    differences = recipe_differences(named) if len(named) > 1 else {}
    if args.json:
        sys.stdout.write(json.dumps({"runs": rows, "differences": differences}, indent=2) + "\n")
    elif not rows:
        sys.stdout.write(f"no runs in {args.runs_dir}; `drivetrain train` makes one\n")
    else:
        _print_tables(rows, differences)
    return 0


def _print_tables(rows: list[dict[str, Any]], differences: dict[str, list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_OF_A_PIPE)
    table = Table(box=None)
    for title in _COLUMNS.values():
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(_shown(name, row) for name in _COLUMNS))
    console.print(table)
    if differences:
        compared = Table("option", *(row["run"] for row in rows), box=None, title="where the recipes differ")
        for name, values in differences.items():
            compared.add_row("--" + name.replace("_", "-"), *(str(value) for value in values))
        console.print(compared)


def _shown(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if name == "update" and row["total_updates"]:
        return f"{value}/{row['total_updates']}"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if name == "images_per_second" else f"{value:.4g}"
    return str(value)
