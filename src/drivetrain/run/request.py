"""Checks a training request before a run writes its first file: data, plan, options and run directory.

Nothing here imports torch, so a mistake is reported quickly.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from drivetrain.catalogue.data_sets import is_external_dataset
from drivetrain.catalogue.models import is_external_model
from drivetrain.catalogue.tasks import task_info
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json
from drivetrain.core.progress import showing_progress
from drivetrain.data.advice import options_to_hold_out
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.splits import open_data
from drivetrain.devices.blas_workspace import check_workspace
from drivetrain.devices.cpu_half import prepare_half_precision
from drivetrain.inference.predict.inputs import expand_inputs
from drivetrain.inference.predict.prediction_note import changed_file
from drivetrain.models.libraries.sizes import require_fitting_images
from drivetrain.plan.training_plan import TrainingPlan, plan_training
from drivetrain.recipe.checks.input_kind import check_input_options
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.ending import check_metrics, parse_duration_s
from drivetrain.recipe.given import Given
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import fitted_values, normalised_set, refitted
from drivetrain.run.kept_settings import keep_settings
from drivetrain.store.checkpoint_paths import checkpoint_paths
from drivetrain.store.data_files import (
    DataFiles,
    OwnData,
    files_of,
    own_data_of,
    require_same_files,
    require_same_set,
)
from drivetrain.store.directory import (
    RunDirectory,
    check_writable,
    clear_directory,
    default_run_path,
    foreign_entries,
)
from drivetrain.store.identity import check_same_identity, identity_of, with_normalised_set
from drivetrain.store.stored_plan import FITTED_KEY, kept_fit

# More threads than this only wait for each other, and each takes memory.
_MOST_THREADS_PER_CORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSeries:
    """Trainings of equal length that one process runs in a row (folds), and their common time limit."""

    trainings: int
    max_time_s: float | None


def series_of(recipe: Recipe, *, trainings: int) -> TrainingSeries:
    """A series of `trainings` of a recipe; its --max-time is the limit of the whole series."""
    max_time = recipe.max_time
    return TrainingSeries(
        trainings=trainings, max_time_s=None if max_time is None else parse_duration_s(str(max_time))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A recipe with its data, its plan and its run directory.

    `series` is set if this training is one of several; --max-time counts from `began_s` on.
    """

    resolved: ResolvedRecipe
    data: DataSplits
    plan: TrainingPlan
    directory: RunDirectory
    identity: dict[str, Any]
    files: DataFiles | None
    own_data: OwnData | None = None
    series: TrainingSeries | None = None
    began_s: float

    @property
    def recipe(self) -> Recipe:
        return self.resolved.recipe

    @property
    def warnings(self) -> list[str]:
        return [*self.resolved.warnings, *self.data.warnings, *self.plan.warnings]

    @property
    def goes_on(self) -> bool:
        """Whether the directory holds a run that this request continues."""
        return self.directory.binds and not self.recipe.overwrite

    @property
    def has_weights(self) -> bool:
        """Whether the run to continue has a checkpoint."""
        return self.goes_on and bool(checkpoint_paths(self.directory.checkpoints))

    def check_directory(self) -> None:
        """Refuses a directory that holds another run, or files that are not of a run."""
        path = self.directory.path
        if self.recipe.overwrite and self.directory.holds_run:
            return
        if self.directory.binds:
            check_same_identity(
                self._identity_to_keep(),
                self.identity,
                path=path,
                check_data=partial(require_same_files, self.recipe, self.files, directory=self.directory),
            )
            self._check_predictions()
        elif not self.directory.holds_run:
            self._refuse_foreign_entries()
            self._refuse_maimed_run()

    def _identity_to_keep(self) -> dict[str, Any]:
        """The identity of the run to continue; --fit allows another set for batch norm."""
        stored = _stored_identity(self.directory)
        if not self.recipe.fit or self.resolved.fitted_from is None:
            return stored
        return with_normalised_set(stored, normalised_set(self.recipe))

    def _refuse_foreign_entries(self) -> None:
        path = self.directory.path
        if foreign_entries(path):
            raise BadInputError(
                f"--output-dir {path} holds {foreign_entries(path)[0]} and no run; name an empty or a new "
                "directory."
            )

    def _refuse_maimed_run(self) -> None:
        """Refuses to delete checkpoints and metrics of a run that only lost its recipe or identity."""
        named = (self.directory.recipe, self.directory.identity)
        missing = [path.name for path in named if not path.is_file()]
        if self.directory.keeps_progress and not self.recipe.overwrite:
            raise BadInputError(
                f"--output-dir {self.directory.path} holds a run without its {' and '.join(missing)}, so "
                "it cannot be compared with this request; restore the missing file, name another "
                "--output-dir, or use --overwrite to start afresh."
            )

    def _check_predictions(self) -> None:
        """Refuses --predict-after if it would overwrite a prediction that was corrected by hand."""
        changed = changed_file(self.directory.predictions) if self.recipe.predict_after else None
        if changed is not None:
            raise BadInputError(
                f"{self.directory.predictions / changed} was changed after it was predicted, and "
                "--predict-after may overwrite it; move it, or leave out --predict-after."
            )

    def claim_directory(self) -> None:
        """Checks again under the lock, as files may have changed; clears them unless the run continues."""
        self.check_directory()
        if not self.goes_on:
            clear_directory(self.directory.path)


def _no_model(_spec: DataSpec) -> None:
    return None


def prepare_request(
    resolved: ResolvedRecipe,
    *,
    data: DataSplits | None = None,
    own_model: Callable[[DataSpec], list[str] | None] = _no_model,
    sibling: RunDirectory | None = None,
    began_s: float | None = None,
    reporter: Reporter | None = None,
) -> Request:
    """Opens the data, plans the training and chooses the directory; raises if anything is wrong.

    `own_model` gives the architecture of a model given in Python. `sibling` is another fold of the same
    cross-validation, which must use the same files. --max-time counts from `began_s` on (seconds since 1970;
    default: now). `reporter` shows the progress of reading the data.
    """
    began_s = time.time() if began_s is None else began_s
    recipe = resolved.recipe
    _check_machine(recipe)
    prepare_half_precision(recipe)
    expand_inputs(recipe.predict_after, option="--predict-after")
    with showing_progress(reporter):
        splits = open_data(recipe) if data is None else data
    given = Given(recipe, resolved.origins)
    check_task_options(given, task=splits.spec.task)
    check_input_options(given, kind=splits.spec.input_kind, words=splits.spec.input_words)
    _check_data(recipe, splits)
    files = files_of(recipe, splits)
    if sibling is not None:
        require_same_set(recipe, files, directory=sibling)
    check_metrics(recipe, task=splits.spec.task, class_names=splits.spec.class_names)
    plan = plan_training(recipe, samples=len(splits.train), warns_of_skipped=not resolved.skips_by_rule)
    is_own_data = data is not None or is_external_dataset(recipe.dataset)
    own_data = own_data_of(splits) if is_own_data else None
    identity = _identity(recipe, plan, splits, own_data=own_data, own_model=own_model(splits.spec))
    path = Path(recipe.output_dir) if recipe.output_dir else default_run_path(resolved.name, identity)
    check_writable(path)
    directory = RunDirectory(path)
    if directory.binds and not recipe.overwrite:
        resolved = keep_settings(resolved, directory)
    request = _as_fitted_before(
        Request(
            resolved=resolved,
            data=splits,
            plan=plan,
            directory=directory,
            identity=identity,
            files=files,
            began_s=began_s,
            own_data=own_data,
        )
    )
    request.check_directory()
    return request


def _as_fitted_before(request: Request) -> Request:
    """The request with the smaller micro-batch that this run had to take, unless another one is asked for."""
    kept = kept_fit(request.directory.plan) if request.goes_on else None
    if kept is None:
        return request
    asked, used = kept
    if fitted_values(request.recipe) == used:
        return replace(request, resolved=replace(request.resolved, fitted_from=asked))
    recipe = refitted(request.recipe, used) if fitted_values(request.recipe) == asked else None
    return request if recipe is None else refit(request, recipe)


def refit(request: Request, recipe: Recipe) -> Request:
    """The request with a recipe that fits the memory, in the same directory; it remembers what was asked."""
    resolved = request.resolved
    asked = resolved.fitted_from or fitted_values(request.recipe)
    return replace(
        request,
        resolved=replace(resolved, recipe=recipe, fitted_from=asked),
        plan=plan_training(
            recipe, samples=len(request.data.train), warns_of_skipped=not resolved.skips_by_rule
        ),
        identity=with_normalised_set(request.identity, normalised_set(recipe)),
    )


def first_possible(request: Request, recipes: Iterable[Recipe]) -> Request | None:
    """The request with the first of these recipes whose training can be planned; None if there is none."""
    for recipe in recipes:
        try:
            return refit(request, recipe)
        except BadInputError:
            # Some pipeline schedules need certain numbers of micro-batches.
            continue
    return None


def fit_to_keep(request: Request) -> dict[str, Any]:
    """The entry of plan.json by which a continued run takes the smaller micro-batch too."""
    asked = request.resolved.fitted_from
    return {} if asked is None else {FITTED_KEY: {"asked": asked, "used": fitted_values(request.recipe)}}


def _check_machine(recipe: Recipe) -> None:
    """Refuses more threads than this machine can use, and an environment that --deterministic cannot use."""
    if recipe.deterministic:
        check_workspace()
    most = _MOST_THREADS_PER_CORE * (os.cpu_count() or 1)
    if recipe.num_threads is not None and recipe.num_threads > most:
        raise BadInputError(
            f"--num-threads {recipe.num_threads} is more than this machine can use ({os.cpu_count()} cores); "
            f"--num-threads {os.cpu_count()} works."
        )


def _check_data(recipe: Recipe, data: DataSplits) -> None:
    spec = data.spec
    takes_any_shape = task_info(spec.task).takes_any_shape or is_external_model(recipe.model)
    if spec.height != spec.width and recipe.image_size is None and not takes_any_shape:
        raise BadInputError(
            f"the images are {spec.height}x{spec.width}, but --model {recipe.model} needs square images; "
            f"--image-size {min(spec.height, spec.width)} makes them square."
        )
    require_fitting_images(recipe, spec)
    _require_classes(recipe, data)
    if not recipe.training and data.validation is None:
        options = options_to_hold_out(recipe, data.train)
        way_out = "leave it out" if options is None else f"{options} holds some out"
        raise BadInputError(
            f"--training False leaves nothing to do: there are no validation samples; {way_out}."
        )


def _require_classes(recipe: Recipe, data: DataSplits) -> None:
    """Refuses data of a single class: any model would be right from the first update on."""
    if task_info(data.spec.task).needs_two_classes and data.spec.num_classes < 2:
        origin = "the data have" if recipe.data_dir is None else f"--data-dir {recipe.data_dir} has"
        raise BadInputError(
            f"{origin} a single class, {data.spec.class_names[0]}, so there is nothing to distinguish; "
            "give samples of at least two classes."
        )


def _identity(
    recipe: Recipe,
    plan: TrainingPlan,
    data: DataSplits,
    *,
    own_data: OwnData | None,
    own_model: list[str] | None,
) -> dict[str, Any]:
    identity = {
        **identity_of(recipe, global_batch=plan.batch.global_batch),
        "training_samples": len(data.train),
        "class_names": list(data.spec.class_names),
    }
    if own_data is not None:
        identity["own_data"] = own_data.train
    if own_model is not None:
        identity["own_model"] = hashlib.sha256(json.dumps(own_model).encode()).hexdigest()[:16]
    return identity


def _stored_identity(directory: RunDirectory) -> dict[str, Any]:
    try:
        stored = read_json(directory.identity)
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"--output-dir {directory.path} holds a run whose identity.json cannot be read ({error}); "
            "--overwrite starts afresh."
        ) from error
    # A run that was stopped while it took a smaller micro-batch still has its former identity.
    kept = kept_fit(directory.plan)
    if kept is None:
        return stored
    used = {name: value or 1 for name, value in kept[1].items()}
    return with_normalised_set(stored, used["micro_batch_size"] * used["dbn_replica_group_size"])
