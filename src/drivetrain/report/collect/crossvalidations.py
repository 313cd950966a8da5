"""What a page shows of a cross-validation: its folds, their spread and their curves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drivetrain.catalogue.metrics import brief_metric
from drivetrain.core.errors import DrivetrainError
from drivetrain.core.files import read_json
from drivetrain.crossvalidation.results import Statistics, read_fold, summarise
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.report.collect.budget import PictureBudget, not_shown
from drivetrain.report.collect.command import reproducing_command
from drivetrain.report.collect.confusion import confusion_of_folds
from drivetrain.report.collect.environment import environment_facts
from drivetrain.report.collect.examples import pictures_of_folds
from drivetrain.report.collect.folds import finished_table, fold_curves, unfinished_table
from drivetrain.report.collect.identifiers import id_of, name_of
from drivetrain.report.collect.plan_tables import memory_of, plan_tables
from drivetrain.report.collect.recipe_values import recipe_values
from drivetrain.report.collect.results import SUGGESTION, facts_of, main_metric_of, messages_of
from drivetrain.report.collect.stored_run import DAMAGE, StoredRun, read_run
from drivetrain.report.contents import Curve, Folds, RecipeValue, RunContents
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import RunDirectory
from drivetrain.store.listing import folds_of
from drivetrain.store.lock import is_locked
from drivetrain.store.run_state import State, state_of_job
from drivetrain.store.stored_plan import REASONS_KEY

__all__ = ["crossvalidation_contents"]

# Facts of a fold that are not those of the job.
_OF_ONE_FOLD = ("updates", "began", "last event", "ended early by", "first update", "directory")
_MOST_MESSAGES = 20


@dataclass(slots=True, kw_only=True)
class _Job:
    """A cross-validation with the folds that have begun, by number."""

    directory: CrossvalDirectory
    record: dict[str, Any]
    recipe: dict[str, Any]
    state: State
    folds: list[tuple[int, StoredRun]]
    problems: list[str] = field(default_factory=list)

    @property
    def first(self) -> StoredRun | None:
        """The first fold, whose plan and environment stand for all."""
        return self.folds[0][1] if self.folds else None


def crossvalidation_contents(path: Path, *, max_points: int | None, budget: PictureBudget) -> RunContents:
    """A cross-validation, whatever state it is in."""
    job = _read_job(path)
    first = job.first
    statistics = _statistics(job)
    contents = RunContents(
        id=id_of(path),
        name=name_of(path),
        kind="cross-validation",
        state=job.state,
        task="" if first is None else str(first.data.get("task", "")),
        headline=_headline(job, statistics),
        facts=[("folds", str(job.record.get("folds", len(job.folds)))), *_facts(job)],
        command=reproducing_command(job.recipe, command="crossval"),
        curves=_curves(job, max_points),
        recipe=_recipe(job),
        plan=[] if first is None else first.part("The plan", plan_tables) or [],
        tables=[],
        environment=[] if first is None else first.part("The environment", environment_facts) or [],
        warnings=[],
    )
    folds = None if first is None else first.part("The folds", lambda _: _folds(job, statistics))
    if folds is not None:
        contents["folds"] = folds
    if first is not None and (memory := first.part("The memory", memory_of)):
        contents["memory"] = memory
    _add_pictures(contents, job, budget)
    contents["warnings"] = [*_messages(job), *not_shown(budget, alone="each fold")]
    return contents


def _add_pictures(contents: RunContents, job: _Job, budget: PictureBudget) -> None:
    """What the folds left of their validation samples: together these are all samples, each once."""
    pictures = pictures_of_folds(job.folds, budget=budget)
    if pictures.masks:
        contents["masks"] = pictures.masks
    if pictures.worst:
        contents["worst"] = pictures.worst
    folds = [fold for _, fold in job.folds]
    if confusion := confusion_of_folds(folds, cells=pictures.cells, problems=job.problems):
        contents["confusion"] = confusion


def _read_job(path: Path) -> _Job:
    directory, problems = CrossvalDirectory(path), list[str]()
    record, recipe = dict[str, Any](), dict[str, Any]()
    try:
        record = read_json(directory.record)
        recipe = read_recipe_yaml(directory.recipe) if directory.recipe.is_file() else {}
    except (DrivetrainError, OSError, ValueError) as error:
        problems.append(str(error))
    begun = [fold for fold in folds_of(path) if isinstance(fold, RunDirectory)]
    folds = [(int(fold.path.name.removeprefix("fold-")), read_run(fold.path)) for fold in begun]
    if not recipe and folds:
        recipe = {**folds[0][1].recipe, "fold": None}
    states = [fold.state for _, fold in folds]
    return _Job(
        directory=directory,
        record=record,
        recipe=recipe,
        state=state_of_job(record, is_held=is_locked(path), folds=states),
        folds=folds,
        problems=problems,
    )


def _statistics(job: _Job) -> Statistics | None:
    """Means and deviations, once all folds are finished."""
    if job.state != "finished" or len(job.folds) < 2:
        return None
    try:
        results = [read_fold(fold.directory, fold=number) for number, fold in job.folds]
        return summarise(results, best_by=job.recipe.get("best_by"))
    except DAMAGE as error:
        job.problems.append(f"The spread over the folds cannot be shown, as files are damaged ({error}).")
        return None


def _headline(job: _Job, statistics: Statistics | None) -> list[tuple[str, str]]:
    if statistics is None:
        done = sum(fold.state == "finished" for _, fold in job.folds)
        return [("progress", f"{done} of {job.record.get('folds', len(job.folds))} folds finished")]
    name = statistics.metric
    spreads = {"last": statistics.last[name], "best": statistics.best[name]}
    return [
        (f"{when} {brief_metric(name)}", f"{each.mean:.4f} ± {each.standard_deviation:.4f}")
        for when, each in spreads.items()
    ]


def _facts(job: _Job) -> list[tuple[str, str]]:
    if job.first is None:
        return []
    facts = job.first.part("The facts", facts_of) or []
    own = [(name, value) for name, value in facts if name not in _OF_ONE_FOLD]
    return [*own, ("directory", str(job.directory.path))]


def _curves(job: _Job, max_points: int | None) -> list[Curve]:
    if job.first is None:
        return []
    return job.first.part("The curves", lambda _: fold_curves(job.folds, max_points=max_points)) or []


def _recipe(job: _Job) -> list[RecipeValue]:
    """The recipe of the job; its values have the origins that the first fold kept."""
    first = job.first
    origins, reasons = (None, {}) if first is None else (first.origins, first.plan.get(REASONS_KEY, {}))
    return recipe_values(job.recipe, origins=origins, reasons=reasons)


def _folds(job: _Job, statistics: Statistics | None) -> Folds:
    if statistics is None:
        return unfinished_table(job.folds, main_metric_of(job.folds[0][1]))
    results = [read_fold(fold.directory, fold=number) for number, fold in job.folds]
    return finished_table(results, statistics)


def _messages(job: _Job) -> list[str]:
    """What the folds say, each sentence once, and which folds say it; suggestions stay on their pages."""
    said: dict[str, list[int]] = {}
    for number, fold in job.folds:
        for sentence in (*(fold.part("Warnings", messages_of) or []), *fold.problems):
            if not sentence.startswith(SUGGESTION):
                said.setdefault(sentence, []).append(number)
    lines = [_with_folds(sentence, numbers, of=len(job.folds)) for sentence, numbers in said.items()]
    return [*job.problems, *lines[:_MOST_MESSAGES]]


def _with_folds(sentence: str, numbers: Sequence[int], *, of: int) -> str:
    if len(numbers) == of:
        return sentence
    return f"Fold{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}: {sentence}"
