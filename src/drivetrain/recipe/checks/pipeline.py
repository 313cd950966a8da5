"""The rules for pipeline stages: their number, their devices and the options of single stages."""

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.fields import fields_of_stages, option_name
from drivetrain.recipe.given import Given
from drivetrain.recipe.layout import device_of_stage, stage_count
from drivetrain.recipe.schema import Recipe

__all__ = ["check_pipeline", "derive_memory"]


def derive_memory(given: Given) -> Recipe:
    """The recipe with the recomputation and offloading that `--optimise-for` stands for.

    An option that was typed wins over `--optimise-for`, which in turn wins over a recipe file.
    """
    recipe = given.recipe
    savers = ("recomputation", "optimizer_state_offloading")
    changes: dict[str, bool] = {}
    if recipe.optimise_for == "memory":
        changes = {field: True for field in savers if not given.is_typed(field)}
    elif recipe.optimise_for == "balanced" and stage_count(recipe) == 1:
        changes = {"recomputation": True} if not given.is_typed("recomputation") else {}
    elif recipe.optimise_for == "speed":
        changes = {field: False for field in savers if not given.is_typed(field)}
    return recipe.model_copy(update=changes) if changes else recipe


def check_pipeline(given: Given) -> None:
    """--stages, --pipeline-splits, --device-mapping and --stage-options must fit together."""
    _check_stage_count(given)
    _check_mapping(given)
    _check_needs_stages(given)
    _check_stage_options(given)
    _check_compiled_split(given)
    _check_timed_split(given)


def _check_stage_count(given: Given) -> None:
    recipe = given.recipe
    if recipe.pipeline_splits and recipe.stages not in (None, len(recipe.pipeline_splits) + 1):
        raise BadInputError(
            f"{given.option('stages')} does not fit {given.option('pipeline_splits')}, which splits the "
            f"model into {len(recipe.pipeline_splits) + 1} stages; leave --stages out."
        )


def _check_mapping(given: Given) -> None:
    recipe = given.recipe
    mapping, stages = recipe.device_mapping, stage_count(recipe)
    if not mapping:
        return
    whole = " ".join(map(str, range(stages)))
    if min(mapping) < 0:
        raise BadInputError(
            f"{given.option('device_mapping')} has a device below 0; --device-mapping {whole} works."
        )
    if len(mapping) != stages:
        raise BadInputError(
            f"{given.option('device_mapping')} names {len(mapping)} devices for {stages} stages; it must "
            f"name one for each, such as --device-mapping {whole}."
        )
    missing = [device for device in range(max(mapping)) if device not in mapping]
    if missing:
        raise BadInputError(
            f"{given.option('device_mapping')} leaves device {missing[0]} without a stage; number the "
            f"devices from 0 without gaps, such as --device-mapping {whole}."
        )


def _check_needs_stages(given: Given) -> None:
    if stage_count(given.recipe) > 1:
        return
    for field in fields_of_stages():
        if given.is_typed(field):
            raise BadInputError(
                f"{given.option(field)} has no effect without pipeline stages; add --stages 2 or leave it "
                "out."
            )


def _check_stage_options(given: Given) -> None:
    recipe = given.recipe
    stages = stage_count(recipe)
    for option in recipe.stage_options:
        if option["stage"] >= stages:
            raise BadInputError(
                f"{option_name('stage_options')} names stage {option['stage']}, but the stages are 0 to "
                f"{stages - 1}; --stages {option['stage'] + 1} would create it."
            )
    if recipe.stage_options and stages == 1:
        raise BadInputError(
            "--stage-options needs more than one stage; add --stages 2, or use "
            "--recomputation, --precision, --compile and --optimizer-state-offloading."
        )
    if _mixes_offloading(recipe):
        raise BadInputError(
            "--stage-options offloads one stage of a device and not the other, but they share one "
            "optimiser; give all stages of a device the same offload."
        )


def _mixes_offloading(recipe: Recipe) -> bool:
    options = {option["stage"]: option for option in recipe.stage_options}
    default = recipe.optimizer_state_offloading
    wishes: dict[int, set[bool]] = {}
    for stage, device in enumerate(device_of_stage(recipe)):
        wishes.setdefault(device, set()).add(options.get(stage, {}).get("offload", default))
    return any(len(wish) > 1 for wish in wishes.values())


def _check_timed_split(given: Given) -> None:
    if given.recipe.deterministic and given.recipe.split_by == "time" and stage_count(given.recipe) > 1:
        raise BadInputError(
            f"{given.option('split_by')} cuts the model by measured times, but --deterministic lets no "
            "measured time decide; --split-by cost works."
        )


def _check_compiled_split(given: Given) -> None:
    recipe = given.recipe
    compiles = recipe.compile == "on" or any(option.get("compile") for option in recipe.stage_options)
    if recipe.pipeline_schedule == "zero-bubble" and stage_count(recipe) > 1 and compiles:
        raise BadInputError(
            f"{given.option('pipeline_schedule')} splits backward passes in two, which compiled stages "
            "cannot do; use --compile off, or --pipeline-schedule 1f1b."
        )
