"""The table of runs as CSV: its columns, every metric's best value, and the options in which runs differ."""

import csv
import io
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from drivetrain.cli.listing.chosen_runs import ListedRun
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.store.listing import differences_in_words

__all__ = ["STDOUT", "runs_as_csv", "write_csv"]

STDOUT = "-"


def runs_as_csv(runs: Sequence[ListedRun], *, best: Collection[int]) -> str:
    """One row per run; options begin with --, and `is_best` is True for marked runs."""
    metrics = sorted({name for run in runs for name in run.metrics})
    differences = differences_in_words([run.run for run in runs]) if len(runs) > 1 else {}
    names = [name for name in (runs[0].row if runs else ()) if name != "by_class"]
    options = {f"--{name.replace('_', '-')}": values for name, values in differences.items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "is_best", *(f"best_{name}" for name in metrics), *options])
    for place, run in enumerate(runs):
        cells = [_cell(run.row, name) for name in names]
        cells += [place in best, *(_cell(run.metrics, name) for name in metrics)]
        writer.writerow([*cells, *(values[place] for values in options.values())])
    return text.getvalue()


def write_csv(path: str, text: str) -> None:
    """Writes to a file, or to stdout for -."""
    if path == STDOUT:
        sys.stdout.write(text)
        return
    if Path(path).is_dir():
        raise BadInputError(
            f"--csv {path} is a folder; name a file, such as --csv runs.csv, or write --csv last."
        )
    try:
        write_atomically(Path(path), text.encode())
    except OSError as error:
        raise BadInputError(
            f"--csv {path} cannot be written ({error.strerror or error}); try --csv runs.csv."
        ) from error


def _cell(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    return "" if value is None else value
