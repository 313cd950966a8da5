"""`drivetrain runs`: lists all runs, or compares the named runs or the folds of a cross-validation."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from drivetrain.catalogue.metrics import brief_metric
from drivetrain.console.figures import speed_text
from drivetrain.console.tables import Column, fits, fitted_table, without_folders
from drivetrain.core.errors import BadInputError
from drivetrain.store.directory import DEFAULT_PARENT, open_run
from drivetrain.store.listing import (
    describe_run,
    differences_in_words,
    find_runs,
    folds_of,
    recipe_differences,
)

_WIDTH_OF_A_PIPE = 160
_MOST_CLASSES_IN_A_CELL = 3
_COLUMNS = {
    "run": "run",
    "status": "status",
    "update": "update",
    "training_loss": "loss",
    "metric": "metric",
    "validation": "validation",
    "best_validation": "best",
    "by_class": "by class",
    "elapsed_seconds": "seconds",
    "images_per_second": "images/s",
}

# The columns that may be dropped on a narrow terminal; the highest number is dropped first.
_RANKS = {
    "metric": 1,
    "by_class": 2,
    "best_validation": 3,
    "training_loss": 4,
    "elapsed_seconds": 5,
    "images_per_second": 6,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs or cross-validations to compare (default: list all)"
    )
    parser.add_argument(
        "--runs-dir",
        default=str(DEFAULT_PARENT),
        metavar="DIR",
        help=f"folder that contains the runs (default: {DEFAULT_PARENT})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    named = [run for path in args.runs for run in folds_of(Path(path)) or [open_run(path)]]
    chosen = named or find_runs(Path(args.runs_dir))
    if not chosen and not Path(args.runs_dir).is_dir() and args.runs_dir != str(DEFAULT_PARENT):
        raise BadInputError(
            f"--runs-dir {args.runs_dir} does not exist; the default is --runs-dir {DEFAULT_PARENT}."
        )
    rows = [describe_run(found) for found in chosen]
    if args.json:
        differences = recipe_differences(named) if len(named) > 1 else {}
        sys.stdout.write(json.dumps({"runs": rows, "differences": differences}, indent=2) + "\n")
    elif not rows:
        sys.stdout.write(f"no runs in {args.runs_dir}; `drivetrain train` starts one\n")
    else:
        _print_tables(rows, differences_in_words(named) if len(named) > 1 else {})
    return 0


def _print_tables(rows: list[dict[str, Any]], differences: dict[str, list[str]]) -> None:
    # A pipe has no terminal width; whatever reads it should get all columns.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    lines = _listed(rows, width=width)
    if differences:
        lines += ["", "differences between the recipes", *_compared(rows, differences, width=width)]
    sys.stdout.write("\n".join(lines) + "\n")


def _listed(rows: list[dict[str, Any]], *, width: int) -> list[str]:
    columns = [
        Column(title=title, cells=[_shown(name, row) for row in rows], rank=_RANKS.get(name))
        for name, title in _COLUMNS.items()
        if name != "by_class" or any(row[name] for row in rows)
    ]
    if not fits(columns, width=width):
        columns[0] = without_folders(columns[0])
    return fitted_table(columns, width=width)


def _compared(rows: list[dict[str, Any]], differences: dict[str, list[str]], *, width: int) -> list[str]:
    """One row per option or, if that is too wide, one row per option and run."""
    names = without_folders(Column(title="run", cells=[row["run"] for row in rows])).cells
    options = {f"--{name.replace('_', '-')}": values for name, values in differences.items()}
    columns = [Column(title="option", cells=list(options))]
    columns += [
        Column(title=run, cells=[values[place] for values in options.values()])
        for place, run in enumerate(names)
    ]
    if fits(columns, width=width):
        return fitted_table(columns, width=width)
    flat = [
        (option, run, value)
        for option, values in options.items()
        for run, value in zip(names, values, strict=True)
    ]
    titles = ("option", "run", "value")
    return fitted_table(
        [
            Column(title=title, cells=cells)
            for title, cells in zip(titles, zip(*flat, strict=True), strict=True)
        ],
        width=width,
    )


def _metric_in_words(metric: str) -> str:
    """The metric's name; for a cross-validation it is a mean over the folds."""
    name = metric.removeprefix("mean ")
    return brief_metric(name) if name == metric else f"mean over folds of {brief_metric(name)}"


def _classes_in_words(scores: dict[str, float]) -> str:
    """The scores of all classes; for many classes only the lowest score."""
    if len(scores) <= _MOST_CLASSES_IN_A_CELL:
        return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
    name, value = min(scores.items(), key=lambda item: item[1])
    return f"lowest of {len(scores)}: {name} {value:.3f}"


def _shown(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if name == "update" and row["total_updates"]:
        return f"{value}/{row['total_updates']}"
    if value is None:
        return "-"
    if name == "metric":
        return _metric_in_words(str(value))
    if name == "by_class":
        return _classes_in_words(value)
    if isinstance(value, float):
        return speed_text(value) if name == "images_per_second" else f"{value:.4g}"
    return str(value)
