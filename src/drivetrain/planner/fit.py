"""--fit before the start: the options whose predicted memory the device has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import build_preparation
from drivetrain.devices.device import choose_device
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.models.parameter_hooks import copy_model
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from drivetrain.pipeline.memory.outline import outline_of
from drivetrain.plan.stage_report import report_run
from drivetrain.recipe.layout import batch_of, rank_count
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import smaller_recipes
from drivetrain.run.request import Request, first_possible
from drivetrain.run.shortage.advice import batch_options, less_memory

__all__ = ["Fit", "fit_request", "fitting_recipe", "needed_bytes"]

_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A recipe whose predicted memory fits, and what it and the recipe that was asked for need."""

    recipe: Recipe
    needed_bytes: int
    asked_bytes: int


def fitting_recipe(
    recipe: Recipe,
    others: Iterable[Recipe],
    *,
    needed: Callable[[Recipe], int | None],
    available_bytes: int,
) -> Fit | None:
    """The recipe itself or the first of the others that fits; None if the memory cannot be predicted.

    Raises if none fits.
    """
    asked_bytes = needed(recipe)
    if asked_bytes is None:
        return None
    if asked_bytes <= available_bytes:
        return Fit(recipe=recipe, needed_bytes=asked_bytes, asked_bytes=asked_bytes)
    least = asked_bytes
    for other in others:
        other_bytes = needed(other)
        if other_bytes is not None and other_bytes <= available_bytes:
            return Fit(recipe=other, needed_bytes=other_bytes, asked_bytes=asked_bytes)
        least = min(least, other_bytes or least)
    raise BadInputError(
        f"--fit finds nothing that fits: at least {least / _GB:.2f} GB are needed and "
        f"{available_bytes / _GB:.2f} GB are free; {less_memory(recipe)}."
    )


def fit_request(
    request: Request,
    *,
    model: nn.Module | None = None,
    memory_limit_bytes: int | None = None,
    reporter: Reporter,
) -> Request:
    """The request with options whose predicted memory fits; `model` was given in Python.

    What keeps the result comes first: smaller micro-batches that normalise the same samples, then
    recomputation, then any smaller micro-batch.
    """
    recipe, spec = request.recipe, request.data.spec
    preparation = build_preparation(recipe, spec)
    shape = (preparation.channels, preparation.height, preparation.width)
    built = rebuild_model(recipe, spec) if model is None else copy_model(model)
    choose_memory_format(recipe, built, image_shape=shape)
    normalises = any(True for _ in built.buffers())
    possible = [
        found
        for other in _candidates(recipe, normalises=normalises)
        if (found := first_possible(request, [other])) is not None
    ]
    available_bytes = memory_limit_bytes or _available_bytes(recipe)
    with reporter.showing("predicting the memory"):
        fit = fitting_recipe(
            recipe,
            [other.recipe for other in possible],
            needed=lambda each: needed_bytes(each, built, image_shape=shape),
            available_bytes=available_bytes,
        )
    if fit is None or fit.recipe is recipe:
        return request
    reporter.say(
        f"--fit takes {batch_options(fit.recipe)}{' --recomputation' if _recomputes(fit, recipe) else ''}: "
        f"{batch_options(recipe)} would need {fit.asked_bytes / _GB:.2f} GB, this needs "
        f"{fit.needed_bytes / _GB:.2f} GB."
    )
    return _in_its_directory(next(other for other in possible if other.recipe is fit.recipe))


def _candidates(recipe: Recipe, *, normalises: bool) -> list[Recipe]:
    keeping = [*smaller_recipes(recipe, normalises=normalises, may_change_set=False)]
    smaller = [*smaller_recipes(recipe, normalises=normalises, may_change_set=True)]
    again = [] if recipe.recomputation else [recipe, *keeping, *smaller]
    recomputed = [each.model_copy(update={"recomputation": True}) for each in again]
    count = 1 + len(keeping)
    return [*keeping, *recomputed[:count], *smaller, *recomputed[count:]]


def _recomputes(fit: Fit, recipe: Recipe) -> bool:
    return fit.recipe.recomputation and not recipe.recomputation


def needed_bytes(recipe: Recipe, model: nn.Module, *, image_shape: tuple[int, int, int]) -> int | None:
    """The predicted peak of the fullest device of a run; None if it cannot be predicted."""
    batch = batch_of(recipe)
    planned = recipe.model_copy(update={"split_by": "cost"}) if recipe.split_by == "time" else recipe
    stages = plan_stages(
        planned, model, image_shape=image_shape, micro=batch.micro, accumulation=batch.accumulation
    )
    outline = outline_of(recipe, model, plan=stages, images=(batch.micro, *image_shape))
    memory = report_run(outline).get("memory")
    return None if memory is None else memory["peak_bytes"] + memory.get("libraries_bytes", 0)


def _available_bytes(recipe: Recipe) -> int:
    """The free memory of each device; the ranks on a CPU share that of the host."""
    device = choose_device(recipe.device)
    return device.free_memory_bytes // (rank_count(recipe) if device.is_cpu else 1)


def _in_its_directory(request: Request) -> Request:
    """The request with its directory named: ranks would derive another one from the smaller batch."""
    recipe = request.recipe.model_copy(update={"output_dir": str(request.directory.path)})
    return replace(request, resolved=replace(request.resolved, recipe=recipe))
