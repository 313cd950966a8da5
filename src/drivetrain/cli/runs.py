"""`drivetrain runs`: lists all runs, or compares the named runs or the folds of a cross-validation."""

import argparse
import json
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from drivetrain.catalogue.metrics import brief_metric
from drivetrain.cli.listing.chosen_runs import (
    ListedRun,
    best_of_each_kind,
    chosen_runs,
    known_name,
    listed_run,
    name_of_condition,
)
from drivetrain.cli.listing.runs_csv import STDOUT, runs_as_csv, write_csv
from drivetrain.console.figures import speed_text
from drivetrain.console.tables import Column, fits, fitted_table, without_folders
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import count_of
from drivetrain.recipe.fields import written_value
from drivetrain.store.directory import DEFAULT_PARENT, open_run
from drivetrain.store.listing import differences_in_words, find_runs, folds_of, recipe_differences

_WIDTH_OF_A_PIPE = 160
_MOST_CLASSES_IN_A_CELL = 3
_MARK = "*"
_OF_THE_MARK = f"{_MARK} the best of the runs on the same data set"
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
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        action="append",
        default=[],
        help="list only runs that meet it, such as model=unet, seed!=0 or 'dice>0.9'; may be repeated",
    )
    parser.add_argument(
        "--sort",
        metavar="NAME",
        help="sort by a metric (its best value, the best run first), a column such as time, updates or name, "
        "or an option of the recipe (default: oldest first)",
    )
    parser.add_argument("--reverse", action="store_true", help="list in the opposite order")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print JSON instead of tables")
    forms.add_argument(
        "--csv",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write CSV with every metric and the options that differ, to FILE or to stdout",
    )


def run(args: argparse.Namespace) -> int:
    named = [run for path in args.runs for run in folds_of(Path(path)) or [open_run(path)]]
    chosen = named or find_runs(Path(args.runs_dir))
    if not chosen and not Path(args.runs_dir).is_dir() and args.runs_dir != str(DEFAULT_PARENT):
        raise BadInputError(
            f"--runs-dir {args.runs_dir} does not exist; the default is --runs-dir {DEFAULT_PARENT}."
        )
    every = [listed_run(found) for found in chosen]
    listed = chosen_runs(every, where=args.where, sort=args.sort, reverse=args.reverse) if every else []
    metric = _sorted_metric(args.sort, every)
    best = best_of_each_kind(listed, metric=metric)
    compared = [entry.run for entry in listed] if named and len(listed) > 1 else []
    if args.json:
        rows = [{**entry.row, "is_best": place in best} for place, entry in enumerate(listed)]
        found = {"runs": rows, "differences": recipe_differences(compared) if compared else {}}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    elif args.csv is not None:
        write_csv(args.csv, runs_as_csv(listed, best=best))
    elif not every:
        sys.stdout.write(f"no runs in {args.runs_dir}; `drivetrain train` starts one\n")
    elif not listed:
        conditions = " ".join(f"--where {condition}" for condition in args.where)
        sys.stdout.write(f"none of {count_of(len(every), 'run')} meets {conditions}\n")
    else:
        extra = _named_columns(args, every)
        _print_tables(listed, best, differences_in_words(compared) if compared else {}, extra=extra)
    return 0


def _sorted_metric(sort: str | None, runs: Sequence[ListedRun]) -> str | None:
    """The metric by which runs are sorted, and so judged; None: each by its own."""
    if sort is None or not runs:
        return None
    name = known_name(sort, runs, option=f"--sort {sort}")
    return name if name not in runs[0].row and any(name in run.metrics for run in runs) else None


def _named_columns(args: argparse.Namespace, runs: Sequence[ListedRun]) -> list[str]:
    """What the person asked about and the table does not show anyway."""
    asked = [name_of_condition(condition, runs) for condition in args.where]
    if args.sort is not None:
        asked.insert(0, known_name(args.sort, runs, option=f"--sort {args.sort}"))
    return [name for name in dict.fromkeys(asked) if name not in _COLUMNS and name != "total_updates"]


def _print_tables(
    listed: Sequence[ListedRun],
    best: Collection[int],
    differences: dict[str, list[str]],
    *,
    extra: Sequence[str],
) -> None:
    # A pipe has no terminal width; whatever reads it should get all columns.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    rows = [dict(entry.row) for entry in listed]
    lines = _listed(listed, best, width=width, extra=extra)
    if best:
        lines += ["", _OF_THE_MARK]
    if differences:
        lines += ["", "differences between the recipes", *_compared(rows, differences, width=width)]
    sys.stdout.write("\n".join(lines) + "\n")


def _listed(
    listed: Sequence[ListedRun], best: Collection[int], *, width: int, extra: Sequence[str]
) -> list[str]:
    columns = [
        Column(
            title=title,
            cells=[_shown(name, entry.row) for entry in listed],
            rank=_RANKS.get(name),
        )
        for name, title in _COLUMNS.items()
        if name != "by_class" or any(entry.row[name] for entry in listed)
    ]
    asked = [Column(title=name, cells=[_plain(entry.value(name)) for entry in listed]) for name in extra]
    marks = [_MARK if place in best else "" for place in range(len(listed))]
    columns[1:1] = [*([Column(title="", cells=marks)] if best else []), *asked]
    if not fits(columns, width=width):
        columns[0] = without_folders(columns[0])
    return fitted_table(columns, width=width)


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return written_value(tuple(value) if isinstance(value, list) else value)


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


def _shown(name: str, row: Mapping[str, Any]) -> str:
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
