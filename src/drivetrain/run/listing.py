"""What runs there are and how they compare; read from their directories alone."""

import fcntl
from pathlib import Path
from typing import Any

from drivetrain.errors import DrivetrainError
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.run.directory import CROSSVAL_RECORD, RunDirectory
from drivetrain.run.files import read_json
from drivetrain.run.metrics import MAIN_METRICS, read_metrics


def find_runs(parent: Path) -> list[RunDirectory]:
    """The runs inside a folder, and the folds of its cross-validations; oldest first."""
    if not parent.is_dir():
        return []
    found = [RunDirectory(path) for path in parent.iterdir() if (path / "recipe.yaml").is_file()]
    found += [fold for path in parent.iterdir() for fold in folds_of(path)]
    return sorted(found, key=lambda run: run.recipe.stat().st_mtime)


def folds_of(path: Path) -> list[RunDirectory]:
    """The folds of a cross-validation that have begun, in their order; none where `path` is none."""
    if not (path / CROSSVAL_RECORD).is_file():
        return []
    # Not what somebody keeps beside them, such as a copy of a fold.
    begun = [
        recipe.parent
        for recipe in path.glob("fold-*/recipe.yaml")
        if recipe.parent.name.removeprefix("fold-").isdecimal()
    ]
    return [
        RunDirectory(fold) for fold in sorted(begun, key=lambda fold: int(fold.name.removeprefix("fold-")))
    ]


def describe_run(run: RunDirectory) -> dict[str, Any]:
    """One row of the table of runs; one that cannot be read says so."""
    try:
        return _describe(run)
    except (DrivetrainError, OSError, ValueError, KeyError) as error:
        columns = ("model", "dataset", "total_updates", "training_loss", "metric", "validation")
        more = ("best_validation", "elapsed_seconds", "images_per_second")
        unknown = dict.fromkeys([*columns, *more])
        return {"run": str(run.path), "status": f"unreadable: {error}", "update": 0, **unknown}


def _describe(run: RunDirectory) -> dict[str, Any]:
    entries = read_metrics(run.metrics)
    recipe = read_recipe_yaml(run.recipe)
    validations = [entry for entry in entries if entry["event"] == "validation"]
    trainings = [entry for entry in entries if entry["event"] == "train"]
    metric = next((name for name in MAIN_METRICS for entry in validations if name in entry), None)
    values = [entry[metric] for entry in validations if metric and entry.get(metric) is not None]
    return {
        "run": str(run.path),
        "status": _status(run, entries),
        "model": recipe["model"],
        "dataset": recipe["dataset"],
        "update": _last_update(run, entries),
        "total_updates": _total_updates(run),
        "training_loss": trainings[-1]["loss"] if trainings else None,
        "metric": metric,
        "validation": values[-1] if values else None,
        "best_validation": max(values, default=None),
        "elapsed_seconds": max((float(e.get("elapsed_seconds", 0.0)) for e in entries), default=0.0),
        "images_per_second": trainings[-1].get("images_per_second") if trainings else None,
    }


def recipe_differences(runs: list[RunDirectory]) -> dict[str, list[Any]]:
    """The options in which runs differ, with each run's value."""
    recipes = [read_recipe_yaml(run.recipe) for run in runs]
    names = [name for name in recipes[0] if name != "output_dir"]
    values = {name: [recipe.get(name) for recipe in recipes] for name in names}
    return {name: column for name, column in values.items() if any(value != column[0] for value in column)}


def _last_update(run: RunDirectory, entries: list[dict[str, Any]]) -> int:
    logged = [int(entry.get("update", 0)) for entry in entries]
    saved = [int(path.name) for path in run.checkpoints.glob("[0-9]*")]
    return max([*logged, *saved], default=0)


def _status(run: RunDirectory, entries: list[dict[str, Any]]) -> str:
    if any(entry["event"] == "summary" for entry in entries):
        return "finished"
    return "running" if _is_locked(run) else "stopped"


def _is_locked(run: RunDirectory) -> bool:
    lock = run.path / ".lock"
    if not lock.is_file():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _total_updates(run: RunDirectory) -> int | None:
    try:
        return int(read_json(run.plan)["total_updates"])
    except (OSError, ValueError, KeyError):
        return None
