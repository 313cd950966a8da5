"""--fit before the start: the options whose predicted memory the device has."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import Preparation, build_preparation
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.models.parameter_hooks import copy_model
from drivetrain.models.summary import ModelTotals, summarise_model
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from drivetrain.pipeline.memory.outline import RunOutline, outline_of
from drivetrain.plan.stage_report import memory_of_run
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.device_memory import device_memories
from drivetrain.planner.devices.target import Target, find_target
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import smaller_recipes
from drivetrain.run.beginning import shape_of_run
from drivetrain.run.request import Request, first_possible
from drivetrain.run.shortage.advice import batch_options, less_memory

__all__ = ["Fit", "MemoryNeed", "fit_request", "fitting_request"]

_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A request whose predicted memory fits, and what it and the one that was asked for need."""

    request: Request
    needed_bytes: int
    asked_bytes: int


def fitting_request(
    request: Request,
    others: Iterable[Request],
    *,
    needed: Callable[[Request], int | None],
    available_bytes: int,
) -> Fit | None:
    """The request itself or the first of the others that fits; None if the memory cannot be predicted.

    Raises if none fits, or if the request itself is impossible; others that are impossible are left out.
    """
    asked_bytes = needed(request)
    if asked_bytes is None:
        return None
    if asked_bytes <= available_bytes:
        return Fit(request=request, needed_bytes=asked_bytes, asked_bytes=asked_bytes)
    least = asked_bytes
    for other in others:
        other_bytes = None
        # A model that cannot be traced can be trained, but not with recomputation.
        with suppress(BadInputError):
            other_bytes = needed(other)
        if other_bytes is not None and other_bytes <= available_bytes:
            return Fit(request=other, needed_bytes=other_bytes, asked_bytes=asked_bytes)
        least = min(least, other_bytes or least)
    raise BadInputError(
        f"--fit finds nothing that fits: at least {least / _GB:.2f} GB are needed and "
        f"{available_bytes / _GB:.2f} GB may be used; {less_memory(request.recipe)}."
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
    recipe = request.recipe
    target = find_target(recipe, memory_limit_bytes=memory_limit_bytes)
    if target.usable_bytes is None:
        return request
    need = MemoryNeed.of(request, model=model, target=target)
    normalises = any(True for _ in need.model.buffers())
    possible = [
        found
        for other in _candidates(recipe, normalises=normalises)
        if (found := first_possible(request, [other])) is not None
    ]
    with reporter.showing("predicting the memory"):
        fit = fitting_request(request, possible, needed=need, available_bytes=target.usable_bytes)
    if fit is None or fit.request is request:
        return request
    chosen = fit.request.recipe
    again = " --recomputation" if chosen.recomputation and not recipe.recomputation else ""
    reporter.say(
        f"--fit takes {batch_options(chosen)}{again}: {batch_options(recipe)} would need "
        f"{fit.asked_bytes / _GB:.2f} GB, this needs {fit.needed_bytes / _GB:.2f} GB."
    )
    return _in_its_directory(fit.request)


def _candidates(recipe: Recipe, *, normalises: bool) -> list[Recipe]:
    keeping = [*smaller_recipes(recipe, normalises=normalises, may_change_set=False)]
    any_smaller = smaller_recipes(recipe, normalises=normalises, may_change_set=True)
    smaller = [each for each in any_smaller if each not in keeping]
    again = [] if recipe.recomputation else [recipe, *keeping, *smaller]
    recomputed = [each.model_copy(update={"recomputation": True}) for each in again]
    count = 1 + len(keeping)
    return [*keeping, *recomputed[:count], *smaller, *recomputed[count:]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Predicts what a request needs, as `plan` does; `model` is that of all requests."""

    model: nn.Module
    totals: ModelTotals
    preparation: Preparation
    target: Target

    @classmethod
    def of(cls, request: Request, *, model: nn.Module | None = None, target: Target) -> "MemoryNeed":
        """The need of a request and of those that differ from it only in the options of --fit."""
        recipe, spec = request.recipe, request.data.spec
        preparation = build_preparation(recipe, spec)
        channels, height, width = _input_shape(preparation)
        built = rebuild_model(recipe, spec) if model is None else copy_model(model)
        choose_memory_format(recipe, built, image_shape=(channels, height, width))
        totals = summarise_model(built, channels=channels, image_size=height, width=width)
        return cls(model=built, totals=totals, preparation=preparation, target=target)

    def __call__(self, request: Request) -> int | None:
        """The predicted peak of the fullest device; None if it cannot be predicted."""
        outline = self._outline(request)
        prediction = memory_of_run(outline, finds_savings=False).prediction
        if prediction is None:
            return None
        planned = PlannedRun(
            resolved=request.resolved,
            training=request.plan,
            shape=shape_of_run(request.data.spec, self.preparation),
            totals=self.totals,
            outline=outline,
            block_factors={},
            warnings=(),
        )
        return max(each.peak_bytes for each in device_memories(planned, prediction, target=self.target))

    def _outline(self, request: Request) -> RunOutline:
        recipe, batch = request.recipe, request.plan.batch
        shape = _input_shape(self.preparation)
        by_cost = recipe.model_copy(update={"split_by": "cost"}) if recipe.split_by == "time" else recipe
        stages = plan_stages(
            by_cost, self.model, image_shape=shape, micro=batch.micro, accumulation=batch.accumulation
        )
        return outline_of(recipe, self.model, plan=stages, images=(batch.micro, *shape))


def _input_shape(preparation: Preparation) -> tuple[int, int, int]:
    return preparation.channels, preparation.height, preparation.width


def _in_its_directory(request: Request) -> Request:
    """The request with its directory named: ranks would derive another one from the smaller batch."""
    recipe = request.recipe.model_copy(update={"output_dir": str(request.directory.path)})
    return replace(request, resolved=replace(request.resolved, recipe=recipe))
