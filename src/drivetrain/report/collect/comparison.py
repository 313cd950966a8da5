"""Several runs beside each other: the settings in which they differ, and their results."""

from collections.abc import Sequence

from drivetrain.catalogue.metrics import brief_metric
from drivetrain.recipe.fields import option_name
from drivetrain.report.collect.series import short
from drivetrain.report.collect.stored_run import DAMAGE, StoredRun
from drivetrain.report.contents import Cell, Comparison, Table
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.listing import describe_run, differences_in_words

__all__ = ["comparison_of"]

_RESULTS = {
    "status": "status",
    "update": "update",
    "training_loss": "training loss",
    "metric": "metric",
    "validation": "last validation",
    "best_validation": "best validation",
    "elapsed_seconds": "seconds",
    "images_per_second": "images/s",
}


def comparison_of(named: Sequence[tuple[StoredRun | CrossvalDirectory, str]]) -> Comparison:
    """The tables of runs and cross-validations, each with its name on the page."""
    runs = [run for run, _ in named]
    names = [name for _, name in named]
    return Comparison(settings=_settings(runs, names), results=_results(runs, names))


def _settings(runs: Sequence[StoredRun | CrossvalDirectory], names: Sequence[str]) -> Table:
    directories = [run.directory if isinstance(run, StoredRun) else run for run in runs]
    try:
        differences = differences_in_words(directories)
    except DAMAGE as error:
        rows: list[list[Cell]] = [[f"A recipe cannot be read: {error}", *("-" for _ in names)]]
    else:
        rows = [[option_name(field), *values] for field, values in differences.items()]
    return Table(title="Settings that differ", columns=["option", *names], rows=rows)


def _results(runs: Sequence[StoredRun | CrossvalDirectory], names: Sequence[str]) -> Table:
    described = [
        describe_run(run.directory, entries=run.events) if isinstance(run, StoredRun) else describe_run(run)
        for run in runs
    ]
    rows: list[list[Cell]] = [
        [name, *(_cell(column, row.get(column)) for column in _RESULTS)]
        for name, row in zip(names, described, strict=True)
    ]
    return Table(title="Results", columns=["run", *_RESULTS.values()], rows=rows)


def _cell(column: str, value: Cell) -> Cell:
    if column == "metric" and isinstance(value, str):
        name = value.removeprefix("mean ")
        return brief_metric(name) if name == value else f"mean over folds of {brief_metric(name)}"
    return short(value)
