"""Runs all rules that involve more than one field, or names that must be known; here are the general ones."""

import re
from collections.abc import Callable, Mapping

from drivetrain.catalogue.tasks import TASKS
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import shown
from drivetrain.recipe.checks.folds import check_folds, warn_of_idle_fraction
from drivetrain.recipe.checks.input_kind import check_input_kind
from drivetrain.recipe.checks.optimisation import (
    check_learning_rate,
    check_lr_schedule,
    check_optimizer,
    warn_of_idle_staircase,
    warn_of_long_head_start,
    warn_of_long_warmup,
    warn_of_rate_from_scratch,
)
from drivetrain.recipe.checks.pipeline import check_pipeline
from drivetrain.recipe.checks.precision import check_precision
from drivetrain.recipe.checks.replicas import check_parallel_folds, check_replicas, warn_of_larger_batch
from drivetrain.recipe.checks.task import check_segmentation, check_table, check_task, check_white_level
from drivetrain.recipe.checks.weights import check_weights
from drivetrain.recipe.class_weights import parse_class_weights
from drivetrain.recipe.ending import check_best_by, parse_duration_s, parse_goal
from drivetrain.recipe.fields import idle_conditions
from drivetrain.recipe.given import Given
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.messages import place
from drivetrain.recipe.schema import Recipe

# A decimal number or a fraction. The limits on digits keep huge exponents away from Fraction().
_FREQUENCY = re.compile(
    r"[-+]?(\d{1,12}(\.\d{0,100})?|\.\d{1,100})(e[-+]?\d{1,2})?|[-+]?\d{1,12}/0*[1-9]\d{0,11}"
)


def check_ending(given: Given) -> None:
    """--stop-at and --max-time must be well formed, and --best-by must name a metric of the task."""
    from drivetrain.catalogue.models import named_task

    recipe = given.recipe
    task = named_task(dataset=recipe.dataset, model=recipe.model)
    check_best_by(recipe, tasks=[info.name for info in TASKS] if task is None else [task])
    if recipe.stop_at is not None:
        parse_goal(recipe.stop_at)
    if recipe.max_time is not None:
        parse_duration_s(recipe.max_time)


def check_class_weights(given: Given) -> None:
    """--class-weights must be well formed; their number is checked when the data set is open."""
    if given.recipe.class_weights:
        parse_class_weights(given.recipe.class_weights)


def check_model_edits(given: Given) -> None:
    """Each --model-edit has the form package.module:function; it is imported when the model is built."""
    from drivetrain.catalogue.models import has_factory_form

    where = place(given.origins.get("model_edit", ""))
    for name in given.recipe.model_edit:
        if not has_factory_form(name):
            raise BadInputError(
                f"{where}--model-edit {shown(name)} does not have the form package.module:function, "
                "as in my_models:add_dropout."
            )


def check_recipe(recipe: Recipe, origins: Mapping[str, str]) -> list[str]:
    """Raises BadInputError if options contradict each other; otherwise returns the warnings."""
    given = Given(recipe, origins)
    for rule in _RULES:
        rule(given)
    warnings = [
        *_idle_warnings(given),
        warn_of_idle_staircase(given),
        warn_of_long_warmup(given),
        warn_of_long_head_start(given),
        warn_of_rate_from_scratch(given),
        warn_of_idle_fraction(given),
        warn_of_larger_batch(given),
    ]
    return [warning for warning in warnings if warning]


def _check_names(given: Given) -> None:
    from drivetrain.catalogue.data_sets import dataset_info, is_external_dataset
    from drivetrain.catalogue.models import check_model_name

    _with_place("model", given, check_model_name)
    if not is_external_dataset(given.recipe.dataset):
        _with_place("dataset", given, dataset_info)


def _with_place(field: str, given: Given, check: Callable[[str], object]) -> None:
    """Runs a check of a name and puts the name's file and line before its error."""
    try:
        check(str(given.value(field)))
    except BadInputError as error:
        raise BadInputError(f"{place(given.origins.get(field, ''))}{error}") from None


def _check_batch(given: Given) -> None:
    recipe = given.recipe
    if recipe.gradient_accumulation_count is not None and recipe.global_batch_size is not None:
        raise BadInputError(
            f"{given.option('gradient_accumulation_count')} and {given.option('global_batch_size')} "
            "cannot both be given, as one determines the other; leave one out."
        )


def _check_log_options(given: Given) -> None:
    wanted = [field for field in ("log_every", "steps_per_execution") if given.value(field) is not None]
    if given.is_asked("logs_per_epoch"):
        wanted.append("logs_per_epoch")
    if len(wanted) > 1:
        raise BadInputError(
            f"{given.option(wanted[0])} and {given.option(wanted[1])} cannot both be given, "
            "as each sets how often to log; leave one out."
        )


def _check_log_frequency(given: Given) -> None:
    text = given.recipe.logs_per_epoch.strip().lower()
    where = place(given.origins.get("logs_per_epoch", ""))
    if not _FREQUENCY.fullmatch(text):
        raise BadInputError(
            f"{where}--logs-per-epoch is {shown(text)}, it must be a number or a fraction; "
            "--logs-per-epoch 1/2 works."
        )
    if text.startswith("-") and any(digit in text for digit in "123456789"):
        raise BadInputError(
            f"{where}--logs-per-epoch should be non-negative (>=0), it is {text}; --logs-per-epoch 1 works."
        )


def _check_execution_length(given: Given) -> None:
    steps, accumulation = given.recipe.steps_per_execution, given.recipe.gradient_accumulation_count
    if steps is not None and accumulation is not None and steps % accumulation:
        works = max(1, round(steps / accumulation)) * accumulation
        raise BadInputError(
            f"{given.option('steps_per_execution')} must be a multiple of "
            f"{given.option('gradient_accumulation_count')}; --steps-per-execution {works} works."
        )


def _check_preprocessing(given: Given) -> None:
    recipe = given.recipe
    if recipe.eight_bit_transfer and recipe.accelerator_side_preprocess is not True:
        raise BadInputError(
            f"{given.option('eight_bit_transfer')} needs preprocessing on the device; "
            "add --accelerator-side-preprocess True."
        )
    if recipe.data_placement == "resident" and recipe.accelerator_side_preprocess is False:
        raise BadInputError(
            f"{given.option('accelerator_side_preprocess')} is impossible with "
            f"{given.option('data_placement')}, which keeps the samples on the device; --data-placement "
            "stream works."
        )


def _check_modes(given: Given) -> None:
    recipe = given.recipe
    if not recipe.training and recipe.overwrite:
        raise BadInputError(
            f"{given.option('overwrite')} would delete the checkpoint that {given.option('training')} "
            "validates; leave out --overwrite."
        )
    if recipe.predict_after and not (recipe.training and recipe.checkpoints and not recipe.clean_dir):
        field = next(name for name in ("training", "checkpoints", "clean_dir") if given.is_asked(name))
        raise BadInputError(
            f"{given.option('predict_after')} needs a checkpoint of this training, and with "
            f"{given.option(field)} there is none; leave one of the two out."
        )
    if not recipe.training and not recipe.validation:
        raise BadInputError(
            f"{given.option('training')} and {given.option('validation')} leave nothing to do; "
            "--validation True works."
        )


def _check_idle_options(given: Given) -> None:
    for field, cause, sentence in _idle_options(given):
        if not given.is_overruled(field, by=cause):
            raise BadInputError(f"{sentence}; leave one of the two out.")


def _idle_warnings(given: Given) -> list[str]:
    return [f"{sentence}." for _, _, sentence in _idle_options(given)]


def _idle_options(given: Given) -> list[tuple[str, str, str]]:
    return [
        (field, mark.cause, f"{given.option(field)} has no effect with {given.option(mark.cause)}")
        for field, mark in idle_conditions()
        if given.value(mark.cause) == mark.value and given.is_asked(field)
        if given.value(field) is not None and given.value(field) is not False
        if not mark.alone or rank_count(given.recipe) == 1
    ]


_RULES: tuple[Callable[[Given], None], ...] = (
    _check_names,
    check_input_kind,
    check_task,
    check_table,
    check_segmentation,
    check_white_level,
    check_model_edits,
    check_weights,
    _check_batch,
    check_pipeline,
    check_precision,
    check_replicas,
    check_parallel_folds,
    _check_log_options,
    _check_log_frequency,
    _check_execution_length,
    _check_preprocessing,
    _check_modes,
    _check_idle_options,
    check_optimizer,
    check_lr_schedule,
    check_learning_rate,
    check_ending,
    check_class_weights,
    check_folds,
)
