"""Lists and compares runs, reading only their directories."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drivetrain.catalogue.data_sets import default_augmentation
from drivetrain.catalogue.metrics import MAIN_METRICS, class_scores, higher_is_better, shown_metric
from drivetrain.core.errors import DrivetrainError
from drivetrain.core.files import read_json
from drivetrain.recipe.fields import written_value
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.recipe.plain import schedule_name
from drivetrain.store.checkpoint_paths import checkpoint_paths, update_of
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import RunDirectory
from drivetrain.store.lock import is_locked
from drivetrain.store.metrics_file import OF_EVENTS, read_metrics
from drivetrain.store.run_state import State, state_now, state_of_job

Listed = RunDirectory | CrossvalDirectory

_COLUMNS = (
    "run",
    "status",
    "model",
    "dataset",
    "update",
    "total_updates",
    "training_loss",
    "metric",
    "validation",
    "best_validation",
    "by_class",
    "elapsed_seconds",
    "images_per_second",
)


def find_runs(parent: Path) -> list[Listed]:
    """Runs and cross-validations in a folder, oldest first; a cross-validation follows its folds."""
    if not parent.is_dir():
        return []
    runs = [RunDirectory(path) for path in parent.iterdir() if (path / "recipe.yaml").is_file()]
    jobs = [entry for path in parent.iterdir() for entry in folds_of(path)]
    return sorted([*runs, *jobs], key=_begin_s)


def folds_of(path: Path) -> list[Listed]:
    """The started folds of a cross-validation in order, then the job itself; empty for other folders."""
    job = CrossvalDirectory(path)
    return [*_begun_folds(job), job] if job.holds_job else []


def describe_run(run: Listed, *, entries: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """One row of the table of runs; for an unreadable run, the status says why.

    `entries` are the events of the run if they are read already.
    """
    try:
        if isinstance(run, CrossvalDirectory):
            return _describe_job(run)
        return _describe(run, read_metrics(run.metrics) if entries is None else entries)
    except (DrivetrainError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        unknown = dict.fromkeys(_COLUMNS)
        return {**unknown, "run": str(run.path), "status": f"unreadable: {error}", "update": 0}


def _begun_folds(job: CrossvalDirectory) -> list[RunDirectory]:
    # Folders that a user keeps beside the folds, such as fold-0-copy, are ignored.
    begun = [
        recipe.parent
        for recipe in job.path.glob("fold-*/recipe.yaml")
        if recipe.parent.name.removeprefix("fold-").isdecimal()
    ]
    return [
        RunDirectory(fold) for fold in sorted(begun, key=lambda fold: int(fold.name.removeprefix("fold-")))
    ]


def _begin_s(run: Listed) -> float:
    """Start time for sorting; a cross-validation counts as its latest fold."""
    if isinstance(run, RunDirectory):
        return run.recipe.stat().st_mtime
    folds = _begun_folds(run)
    return max((_begin_s(fold) for fold in folds), default=run.record.stat().st_mtime)


def _describe_job(job: CrossvalDirectory) -> dict[str, Any]:
    """The row of a cross-validation: means over the folds once all are finished."""
    record, recipe = read_json(job.record), _recipe_of(job)
    row = {"run": str(job.path), "model": recipe.get("model"), "dataset": recipe.get("dataset")}
    states = [status_of(fold, read_metrics(fold.metrics)) for fold in _begun_folds(job)]
    state = state_of_job(record, is_held=is_locked(job.path), folds=states)
    if state != "finished":
        status = f"{state}, {states.count('finished')} of {record['folds']} folds finished"
        return {**dict.fromkeys(_COLUMNS), **row, "status": status}
    statistics = record["statistics"]
    metric = statistics["metric"]
    return {
        **dict.fromkeys(_COLUMNS),
        **row,
        "status": f"finished, {record['folds']} folds",
        "metric": f"mean {metric}",
        "validation": statistics["last"][metric]["mean"],
        "best_validation": statistics["best"][metric]["mean"],
        "by_class": _by_class(_means(statistics["last"]), metric),
    }


def best_metrics(run: Listed) -> dict[str, float]:
    """The best value of every validation metric, of a finished cross-validation its mean over the folds."""
    try:
        if isinstance(run, CrossvalDirectory):
            record = read_json(run.record)
            return _means(record["statistics"]["best"]) if record["status"] == "finished" else {}
        validations = [entry for entry in read_metrics(run.metrics) if entry["event"] == "validation"]
    except (DrivetrainError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    found: dict[str, list[float]] = {}
    for entry in validations:
        for name, value in entry.items():
            if isinstance(value, float) and name not in OF_EVENTS:
                found.setdefault(name, []).append(value)
    return {name: max(values) if higher_is_better(name) else min(values) for name, values in found.items()}


def recipe_values(run: Listed) -> dict[str, Any]:
    """The options of a run's recipe; empty if it cannot be read."""
    try:
        return _recipe_of(run)
    except (DrivetrainError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def is_fold(run: Listed) -> bool:
    """Whether a run is a fold of a cross-validation: each is validated on samples of its own."""
    return isinstance(run, RunDirectory) and CrossvalDirectory(run.path.absolute().parent).holds_job


def _means(statistics: Mapping[str, Any]) -> dict[str, float]:
    """The means over the folds, by metric."""
    return {name: spread["mean"] for name, spread in statistics.items() if isinstance(spread, dict)}


def _describe(run: RunDirectory, entries: list[dict[str, Any]]) -> dict[str, Any]:
    recipe = read_recipe_yaml(run.recipe)
    validations = [entry for entry in entries if entry["event"] == "validation"]
    trainings = [entry for entry in entries if entry["event"] == "train"]
    metric = _best_metric(recipe, validations)
    values = [entry[metric] for entry in validations if metric and entry.get(metric) is not None]
    return {
        "run": str(run.path),
        "status": status_of(run, entries),
        "model": recipe["model"],
        "dataset": recipe["dataset"],
        "update": _last_update(run, entries),
        "total_updates": _total_updates(run),
        "training_loss": trainings[-1]["loss"] if trainings else None,
        "metric": metric,
        "validation": values[-1] if values else None,
        "best_validation": _best_of(values, metric),
        "by_class": _by_class(validations[-1], metric) if validations else None,
        "elapsed_seconds": max((float(e.get("elapsed_seconds", 0.0)) for e in entries), default=0.0),
        "images_per_second": trainings[-1].get("images_per_second") if trainings else None,
    }


def _best_metric(recipe: dict[str, Any], validations: Sequence[dict[str, Any]]) -> str | None:
    """The metric that chooses the best checkpoint; None before the first validation."""
    names = [recipe["best_by"]] if recipe.get("best_by") else list(MAIN_METRICS.values())
    return next((name for name in names for entry in validations if name in entry), None)


def _best_of(values: Sequence[float], metric: str | None) -> float | None:
    if not values or metric is None:
        return None
    return max(values) if higher_is_better(metric) else min(values)


def _by_class(metrics: Mapping[str, Any], metric: str | None) -> dict[str, float] | None:
    """By class, the score behind `metric`, else the first score; None for classification."""
    scores = class_scores(metrics)
    if not scores or metric is None:
        return None
    own = next((found for words, found in scores.items() if shown_metric(metric).startswith(words)), None)
    return (own or next(iter(scores.values()))).by_class or None


def recipe_differences(runs: Sequence[Listed]) -> dict[str, list[Any]]:
    """The options in which runs differ, with each run's value."""
    recipes = [_recipe_of(run) for run in runs]
    written = [recipe for recipe in recipes if recipe]
    names = [name for name in next(iter(written), {}) if name != "output_dir"]
    return {
        name: [recipe.get(name) for recipe in recipes]
        for name in names
        if any(recipe.get(name) != written[0][name] for recipe in written)
    }


def differences_in_words(runs: Sequence[Listed]) -> dict[str, list[str]]:
    """The options in which runs differ, with each value as written on the command line."""
    recipes = [_recipe_of(run) for run in runs]
    return {
        name: [_meant(name, recipe) if recipe else "-" for recipe in recipes]
        for name in recipe_differences(runs)
    }


def _meant(name: str, recipe: Mapping[str, Any]) -> str:
    value = recipe.get(name)
    if name == "augment" and value is None:
        return f"default ({default_augmentation(str(recipe['dataset']))})"
    if value in (None, [], (), {}):
        return "default"
    return written_value(tuple(value) if isinstance(value, list) else value)


def _recipe_of(run: Listed) -> dict[str, Any]:
    """The recipe of a run; empty for an older cross-validation, which stored none."""
    if isinstance(run, CrossvalDirectory) and not run.recipe.is_file():
        return {}
    recipe = read_recipe_yaml(run.recipe)
    # Older runs call the default schedule interleaved, which is no difference.
    return recipe | {"pipeline_schedule": schedule_name(recipe.get("pipeline_schedule"))}


def _last_update(run: RunDirectory, entries: list[dict[str, Any]]) -> int:
    logged = [int(entry.get("update", 0)) for entry in entries]
    saved = [update_of(path) for path in checkpoint_paths(run.checkpoints)]
    return max([*logged, *saved], default=0)


def status_of(run: RunDirectory, entries: list[dict[str, Any]]) -> State:
    """Whether a run goes on, on this host or on another."""
    return state_now(run.path, has_summary=any(entry["event"] == "summary" for entry in entries))


def _total_updates(run: RunDirectory) -> int | None:
    try:
        return int(read_json(run.plan)["total_updates"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
