"""The Python API: the commands of the command line as functions, which also take your own model and data."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import nn

from drivetrain.auto.applies import refuse_without_rules
from drivetrain.auto.choices import show_choices
from drivetrain.auto.configure import Asked, Rules, configure
from drivetrain.auto.opened import with_fingerprint
from drivetrain.auto.saved_recipe import check_new_file
from drivetrain.auto.saved_recipe import save_recipe as write_recipe
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.stopped import raise_if_signalled
from drivetrain.crossvalidation.job import CrossvalResult, crossval_resolved
from drivetrain.crossvalidation.reporter import CrossvalReporter
from drivetrain.data.splits import split_user_data
from drivetrain.fitting.compiled import compiled_options, sets_optimisation
from drivetrain.inference.evaluate.evaluate import SPLITS, evaluate_run
from drivetrain.inference.predict.inputs import InputNotes
from drivetrain.inference.predict.mask_settings import MaskFormat, MaskSettings
from drivetrain.inference.predict.predict import predict_run
from drivetrain.models.from_keras.model import give_weights_back
from drivetrain.models.from_keras.package import is_keras_model
from drivetrain.models.kept_values import give_own_memory
from drivetrain.models.libraries.taken_over import take_over
from drivetrain.models.modules import take_over_unsaved, unsaved_values
from drivetrain.models.own_model import (
    GivenModel,
    OwnModel,
    dtype_warning,
    name_of_given,
    require_given_model,
)
from drivetrain.pipeline.cutting.marks import has_marks, marked_stages
from drivetrain.planner.asked_plan import make_asked_plan
from drivetrain.planner.devices.described_device import described_for
from drivetrain.planner.devices.sizes import parse_bytes
from drivetrain.planner.drawing.draw_plan import check_picture_folder
from drivetrain.planner.estimate import Measure
from drivetrain.planner.fit import fit_request
from drivetrain.planner.search.asked import take_auto
from drivetrain.recipe.aliases import require_target
from drivetrain.recipe.checks.folds import require_crossval, require_one_fold, require_one_training
from drivetrain.recipe.fields import fields_with
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe
from drivetrain.recipe.notes import Fact
from drivetrain.recipe.params import CompileWord
from drivetrain.recipe.schema import Recipe
from drivetrain.run.start import train_resolved
from drivetrain.run.train import RunResult
from drivetrain.store.crossval_directory import CrossvalDirectory
from drivetrain.store.directory import PYTHON_DATA, RunDirectory
from drivetrain.verify.certificate import verify_resolved
from drivetrain.verify.layouts import parse_cuts
from drivetrain.verify.measure import DtypeChoice, dtypes_named
from drivetrain.verify.points import Requirement

if TYPE_CHECKING:
    from drivetrain.crossvalidation.job import CrossvalResult
    from drivetrain.run.train import RunResult

_UNUSED_COMPILE = (
    "the optimiser that the Keras model was compiled with is not used, because the recipe or the options set "
    "how to optimise."
)
TableFormat = Literal["csv", "json", "both"]


def train(
    recipe: Recipe | str | None = None,
    *,
    model: GivenModel | str | None = None,
    data: Any = None,
    validation_data: Any = None,
    config_path: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> RunResult:
    """Trains a recipe: a Recipe object, or a name, optionally from your own file; keywords replace options.

    `model` is a name, your own module or Keras model (trained in place), or a class or function that creates
    one; it gets those of `num_classes`, `channels` and `image_size` that it accepts. `data` and
    `validation_data` are (images, labels) or, for segmentation, (images, masks), as arrays or tensors, or a
    torch Dataset of images with one label each. `validation_fraction` holds out samples of `data` for
    validation.

    Ctrl-C writes a checkpoint and raises KeyboardInterrupt; SIGTERM writes one and raises SystemExit(143).
    The exception's `result` says how far the training got. If `max_time` runs out, the result's status is
    "stopped" and its exit_status is 75. The metrics of a stopped training are those of its latest
    validation, if there was one.
    """
    began_s = time.time()
    if validation_data is not None and data is None:
        raise BadInputError("validation_data has no effect without data; give both.")
    resolved = _resolve_own(
        recipe,
        options,
        model=model,
        data=data,
        config_path=config_path,
        rules=Rules(stored_recipe=_run_to_continue, is_quiet=quiet, began_s=began_s, check=require_one_fold),
    )
    require_one_training(resolved.recipe)
    splits = (
        None if data is None else split_user_data(resolved.recipe, train=data, validation=validation_data)
    )
    with Reporter(verbosity=resolved.recipe.verbosity, quiet=quiet) as reporter:
        show_choices(resolved, reporter=reporter)
        result = train_resolved(
            resolved,
            reporter=reporter,
            data=splits,
            make_model=_maker(model, resolved),
            began_s=began_s,
            fit=lambda request, own: fit_request(request, model=own, reporter=reporter),
        )
    if is_keras_model(model):
        give_weights_back(model, result.model)
    elif isinstance(model, nn.Module):
        give_own_memory(model)
        model.load_state_dict(result.model.state_dict())
        take_over_unsaved(model, unsaved_values(result.model))
    raise_if_signalled(result)
    return result


def crossval(
    recipe: Recipe | str | None = None,
    *,
    model: GivenModel | str | None = None,
    data: Any = None,
    config_path: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> CrossvalResult:
    """Trains every fold of a recipe, for example with `folds=5`; returns means and standard deviations.

    Every fold starts from your module as it is now; the module itself is not trained. Signals raise as in
    `train`.
    """
    resolved = _resolve_own(
        recipe,
        options,
        model=model,
        data=data,
        config_path=config_path,
        rules=Rules(
            stored_recipe=_job_to_continue, is_quiet=quiet, splits_budget=True, check=require_crossval
        ),
    )
    with CrossvalReporter(verbosity=resolved.recipe.verbosity, quiet=quiet) as reporter:
        show_choices(resolved, reporter=reporter)
        result = crossval_resolved(
            resolved,
            reporter=reporter,
            open_fold=None if data is None else partial(split_user_data, train=data),
            make_model=_maker(model, resolved),
        )
    raise_if_signalled(result)
    return result


def evaluate(
    run: str | Path,
    *,
    split: str | None = None,
    checkpoint: str | int = "newest",
    model: GivenModel | None = None,
    data: Any = None,
    data_dir: str | Path | None = None,
    device: str = "auto",
    compiles: CompileWord = "auto",
    flips: bool | None = None,
    tile_overlap: float | None = None,
    overlay: bool | None = None,
    quiet: bool = True,
) -> list[dict[str, Any]]:
    """Computes the metrics of a run's checkpoints; pass `model` and `data` if training got them in Python.

    `split` is "validation" (default), "train", "test" or "all". If `data` is what the run was trained with,
    the samples that it held out are evaluated; other data are evaluated as a whole, as "all" (or "test").
    `flips`, `tile_overlap` and `overlay` are for segmentation and work like the options of `drivetrain
    evaluate`; `overlay` writes pictures to the run's predictions/evaluation-<split>/.
    """
    if split is not None:
        _require_one_of("split", split, SPLITS)
    _require_one_of("compiles", compiles, get_args(CompileWord))
    if data is not None and data_dir is not None:
        raise BadInputError("data_dir has no effect together with data; leave one of them out.")
    with Reporter(quiet=quiet) as reporter:
        return evaluate_run(
            run,
            reporter=reporter,
            split=split,
            checkpoint=str(checkpoint),
            model=model,
            data=data,
            data_dir=None if data_dir is None else str(data_dir),
            device=device,
            compiles=compiles,
            flips=flips,
            tile_overlap=tile_overlap,
            overlay=overlay,
        )


def predict(
    run: str | Path,
    inputs: str | Path | Sequence[str | Path] | Any,
    *,
    output: str | Path | None = None,
    format: TableFormat = "csv",
    checkpoint: str | int = "newest",
    model: GivenModel | None = None,
    device: str = "auto",
    compiles: CompileWord = "auto",
    mask_format: MaskFormat | None = None,
    probabilities: bool | None = None,
    overlay: bool | None = None,
    flips: bool | None = None,
    tile_overlap: float | None = None,
    quiet: bool = True,
) -> list[dict[str, Any]]:
    """Predicts image files; returns one row per image, with class probabilities or the area of each class.

    `inputs` are files or folders, or an array of samples as the training got them, which gives one row per
    sample. A run on a table or on signals also takes .csv and .npy files.
    The table, and the masks of a segmentation, are written to `output` (default: the run's predictions/).
    The parameters from `mask_format` to `tile_overlap` are for segmentation and work like the options of
    `drivetrain predict`. Files that cannot be read are named in a warning; it is an error only if no file
    can be read.
    """
    _require_one_of("format", format, get_args(TableFormat))
    _require_one_of("compiles", compiles, get_args(CompileWord))
    masks = MaskSettings(
        mask_format=mask_format,
        probabilities=probabilities,
        overlay=overlay,
        flips=flips,
        tile_overlap=tile_overlap,
    )
    notes = InputNotes()
    with Reporter(quiet=quiet) as reporter:
        rows = predict_run(
            run,
            [inputs] if isinstance(inputs, str | Path) else inputs,
            output=RunDirectory(Path(run)).predictions if output is None else output,
            formats=("csv", "json") if format == "both" else (format,),
            reporter=reporter,
            checkpoint=str(checkpoint),
            model=model,
            device=device,
            compiles=compiles,
            masks=masks,
            notes=notes,
        )
    if quiet and notes.left_out:
        files = len({row["file"] for row in rows}) + len(notes.left_out)
        warnings.warn(notes.sentences(files=files)[-1], stacklevel=2)
    return rows


def make_plan(
    recipe: Recipe | str | None = None,
    *,
    config_path: str | Path | None = None,
    lr_at: Sequence[int] = (),
    save_recipe: str | Path | None = None,
    measure: Measure = "off",
    device_file: str | None = None,
    memory_limit: str | int | None = None,
    search: bool = False,
    pictures: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The plan of a recipe, as `drivetrain plan --json` prints it; `save_recipe` is a file for the recipe.

    With `measure` "on" or "auto", some updates are timed on this machine. `device_file`, `memory_limit`,
    `search` and `pictures` are the options of the command; `stages` and `replicas` may be "auto".
    """
    _require_one_of("measure", measure, get_args(Measure))
    described = None if device_file is None else described_for(device_file, measure=measure)
    limit = None if memory_limit is None else parse_bytes(memory_limit, what="memory_limit")
    if save_recipe is not None:
        check_new_file(Path(save_recipe))
    folder = None if pictures is None else Path(pictures)
    if folder is not None:
        check_picture_folder(folder)
    asked, options = take_auto(
        options,
        memory_limit=None if memory_limit is None else str(memory_limit),
        searches=search,
        limits_alone=True,
    )
    rules = Rules(is_quiet=True, splits_budget=True)
    resolved = with_fingerprint(_resolve(recipe, options, config_path=config_path, rules=rules))
    with Reporter(quiet=True) as reporter:
        made = make_asked_plan(
            resolved,
            asked=asked,
            lr_at=lr_at,
            device=described,
            memory_limit_bytes=limit,
            measure=measure,
            pictures=folder,
            reporter=reporter,
        )
    if save_recipe is not None:
        write_recipe(made.resolved, Path(save_recipe))
    return made.plan


def certify(
    recipe: Recipe | str | None = None,
    *,
    model: GivenModel | str | None = None,
    data: Any = None,
    config_path: str | Path | None = None,
    layouts: str = "",
    updates: int | None = None,
    dtype: DtypeChoice | None = None,
    quick: bool = False,
    require: Requirement = "equal",
    quiet: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Verifies that a recipe's layouts compute the same; returns what `drivetrain verify --json` prints.

    Without `updates` and `dtype`, 10 updates are compared in float32 and float64. `quick` verifies one layout
    per family, with 2 updates, in float32 (batch-norm groups in float64). `require="identical"` counts only
    layouts with the same bits as one process. Other processes must be able to import the class of your own
    module.
    """
    if dtype is not None:
        _require_one_of("dtype", dtype, get_args(DtypeChoice))
    _require_one_of("require", require, get_args(Requirement))
    if updates is not None and updates < 1:
        raise BadInputError(f"updates={updates} must be at least 1; updates=10 works.")
    resolved = _resolve_own(recipe, options, model=model, data=data, config_path=config_path)
    with Reporter(verbosity=resolved.recipe.verbosity, quiet=quiet) as reporter:
        certificate = verify_resolved(
            resolved,
            reporter=reporter,
            cuts=parse_cuts(layouts),
            updates=updates,
            dtypes=dtypes_named(dtype),
            quick=quick,
            requires=require,
            data=None if data is None else split_user_data(resolved.recipe, train=data),
            make_model=_maker(model, resolved),
        )
    return certificate.to_json()


def _run_to_continue(path: Path) -> Path | None:
    return RunDirectory(path).recipe_to_continue


def _job_to_continue(path: Path) -> Path | None:
    return CrossvalDirectory(path).recipe_to_continue


def _require_one_of(keyword: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BadInputError(f"{keyword} is {value!r}, it must be one of {', '.join(map(repr, choices))}.")


def _resolve(
    recipe: Recipe | str | None,
    options: dict[str, Any],
    *,
    config_path: str | Path | None,
    rules: Rules | None = None,
    has_python_parts: bool = False,
) -> ResolvedRecipe:
    if recipe is not None and not isinstance(recipe, Recipe | str):
        raise BadInputError(
            f"recipe is of type {type(recipe).__name__}; give a Recipe, or a name that `drivetrain recipes "
            "list` knows."
        )
    # Unknown keywords are refused here: the suggestion must have underscores, as Python has no dashes.
    replaced = {require_target(key, separator="_").field for key in options}
    if not isinstance(recipe, Recipe):
        asked = Asked(
            overrides=options,
            config=recipe,
            config_path=config_path,
            rules=rules,
            has_python_parts=has_python_parts,
        )
        is_quiet = rules is None or rules.is_quiet
        return configure(asked, reporter=lambda found: Reporter(verbosity=found.verbosity, quiet=is_quiet))
    if config_path is not None:
        raise BadInputError(
            "config_path needs the name of a recipe, not a Recipe object; leave one of them out."
        )
    given = {name: getattr(recipe, name) for name in recipe.model_fields_set if name not in replaced}
    resolved = take_over(resolve_recipe(overrides={**given, **options}))
    why = "rules choose nothing for a Recipe object; give its options as keywords to let them choose"
    refuse_without_rules(resolved.recipe, resolved.origins, why=why)
    return resolved


def _resolve_own(
    recipe: Recipe | str | None,
    options: dict[str, Any],
    *,
    model: GivenModel | str | None,
    data: Any,
    config_path: str | Path | None,
    rules: Rules | None = None,
) -> ResolvedRecipe:
    """The recipe of a call that may pass its own model and data."""
    own = require_given_model(model)
    for name in fields_with(Fact.OF_A_MODEL):
        if isinstance(own, nn.Module) and options.get(name):
            raise BadInputError(f"{name} has no effect on a model that is already built; leave it out.")
    compiled = _compiled_options(recipe, options, model=model)
    given = {**compiled, **_with_own_parts(options, model=model, data=data)}
    resolved = _resolve(
        recipe,
        given,
        config_path=config_path,
        rules=rules,
        has_python_parts=own is not None or data is not None,
    )
    unused = is_keras_model(model) and not compiled and getattr(model, "compiled", False)
    warnings = [_UNUSED_COMPILE] if unused else []
    warning = dtype_warning(own)
    return replace(
        resolved, warnings=(*resolved.warnings, *warnings, *([] if warning is None else [warning]))
    )


def _compiled_options(
    recipe: Recipe | str | None, options: dict[str, Any], *, model: GivenModel | str | None
) -> dict[str, Any]:
    """What `compile` of a Keras model was given, where neither recipe nor options say how to optimise."""
    if not is_keras_model(model) or recipe is not None or sets_optimisation(options):
        return {}
    return compiled_options(model)


def _maker(model: GivenModel | str | None, resolved: ResolvedRecipe) -> OwnModel | None:
    own = require_given_model(model)
    return None if own is None else OwnModel(own, resolved.recipe)


def _with_own_parts(
    options: dict[str, Any],
    *,
    model: GivenModel | str | None,
    data: Any,
) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if model is not None:
        own["model"] = model if isinstance(model, str) else name_of_given(model)
    if isinstance(model, nn.Module) and has_marks(model) and not options.get("pipeline_splits"):
        own["stages"] = marked_stages(model)
    if data is not None:
        own["dataset"] = PYTHON_DATA
    return {**own, **options}
