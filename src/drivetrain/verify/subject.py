"""Prepares what a verification measures: a small version of the recipe, a few samples and the model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.catalogue.data_sets import dataset_info, is_external_dataset
from drivetrain.catalogue.models import is_external_model, model_info, nearest_image_size
from drivetrain.catalogue.tasks import task_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.warp import largest_shift
from drivetrain.data.preprocess import build_preparation
from drivetrain.data.source import DataSplits
from drivetrain.layers.draws.rehearsal import find_draws
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.models.own_model import MakeModel
from drivetrain.models.parameter_hooks import carry_hooks
from drivetrain.optim.learning_rate import build_learning_rate
from drivetrain.ranks.sendable import require_sendable
from drivetrain.recipe.checks.input_kind import check_input_options
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.fields import defaults_with
from drivetrain.recipe.given import Given
from drivetrain.recipe.idle import idle_warnings
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.notes import Fact, Measuring
from drivetrain.recipe.schema import LrScheduleParams, Recipe
from drivetrain.verify.samples import few_samples, open_samples
from drivetrain.verify.small_batch import SmallBatch, choose_batch

__all__ = ["Subject", "prepare_subject", "with_small_images"]

# Only the peak of the learning rate is needed. It is computed for a training so long that warm-up and decay
# cannot keep the schedule from reaching it.
_NOMINAL_UPDATES = 10**6
# See `_shortened`: a small step keeps a small batch on its course.
_RATE_SHARE = 0.1
# Seeds of a recipe are below this (`recipe/schema.py`), so adding a point must wrap around.
_SEEDS = 2**63


def with_small_images(given: Given) -> tuple[Recipe, str]:
    """The recipe with images small enough for a CPU, and a note on it; a size that was given is kept."""
    recipe = given.recipe
    is_own = is_external_model(recipe.model) or is_external_dataset(recipe.dataset)
    if is_own or given.is_typed("image_size") or given.is_typed("tile_size"):
        return recipe, ""
    side = nearest_image_size(recipe.model, task_info(model_info(recipe.model).task).verify_side)
    known = recipe.image_size or recipe.tile_size or dataset_info(recipe.dataset).height
    if 0 < known <= side:
        return recipe, ""
    changes = {
        "image_size": side,
        "tile_size": None,
        "elastic": min(recipe.elastic, largest_shift(side)),
    }
    return recipe.model_copy(update=changes), f", {side}x{side} pixels (--image-size chooses another size)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything a process needs to measure the recipe in a layout, and the notes and warnings to show."""

    recipe: Recipe
    data: DataSplits
    model: nn.Module | None
    batch: SmallBatch
    has_batch_norm: bool
    draws_per_micro_batch: bool
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def at_point(self, point: int) -> Self:
        """The same subject with another seed; point 0 is the seed of the recipe."""
        seed = (self.recipe.seed + point) % _SEEDS
        return replace(self, recipe=self.recipe.model_copy(update={"seed": seed}))

    def for_one_update(self) -> Self:
        """The same subject with a single update, for its first gradient."""
        return replace(self, recipe=self.recipe.model_copy(update={"max_updates": 1}))


def prepare_subject(
    resolved: ResolvedRecipe,
    *,
    updates: int,
    quick: bool = False,
    data: DataSplits | None = None,
    make_model: MakeModel | None = None,
) -> Subject:
    """Prepares a recipe for measuring, in a smaller batch if `quick`.

    `data` and `make_model` are given by callers of the Python API.
    """
    given = Given(resolved.recipe, resolved.origins)
    _require_cpu(given)
    batch = choose_batch(given, quick=quick)
    small, size_note = with_small_images(given)
    if data is None:
        splits, data_note = open_samples(replace(resolved, recipe=small), global_batch=batch.global_batch)
    else:
        splits, data_note = few_samples(data, global_batch=batch.global_batch), "your own data"
    check_task_options(given, task=splits.spec.task)
    check_input_options(given, kind=splits.spec.input_kind, words=splits.spec.input_words)
    recipe, rate_note = _shortened(small, batch=batch, updates=updates)
    model = None if make_model is None else make_model(splits.spec)
    if model is not None:
        carry_hooks(model)
        require_sendable(model, what="The model")
    built = rebuild_model(recipe, splits.spec) if model is None else model
    preparation = build_preparation(recipe, splits.spec)
    image_shape = (preparation.channels, preparation.height, preparation.width)
    format_warnings = choose_memory_format(recipe, built, image_shape=image_shape)
    draws = find_draws(recipe, built, image_shape=image_shape)
    return Subject(
        recipe=recipe,
        data=splits,
        model=model,
        batch=batch,
        has_batch_norm=any(isinstance(module, _BatchNorm) for module in built.modules()),
        draws_per_micro_batch=draws.belong_to_micro_batches,
        notes=(
            f"samples: the first {len(splits.train)} of {data_note}{size_note}",
            f"learning rate: {rate_note}",
            *batch.notes,
        ),
        warnings=(*resolved.warnings, *splits.warnings, *_idle_warnings(given), *format_warnings),
    )


def _require_cpu(given: Given) -> None:
    if given.recipe.device not in ("auto", "cpu"):
        raise BadInputError(
            f"{given.option('device')} has no effect: verify computes on the CPU; --device cpu works."
        )
    if given.is_typed("precision") and given.recipe.precision not in ("auto", "32.32"):
        raise BadInputError(
            f"{given.option('precision')} cannot be verified, because half precision rounds by more than "
            "layouts may differ; leave it out, verify computes in float32 and float64."
        )
    halves = [
        option for option in given.recipe.stage_options if str(option.get("precision", "")).startswith("16.")
    ]
    if given.is_typed("stage_options") and halves:
        raise BadInputError(
            f"--stage-options of stage {halves[0]['stage']}: precision {halves[0]['precision']} cannot be "
            "verified, because half precision rounds by more than layouts may differ; leave it out."
        )


def _shortened(recipe: Recipe, *, batch: SmallBatch, updates: int) -> tuple[Recipe, str]:
    """The recipe of a training of `updates` updates, and a note on its learning rate."""
    asked = recipe.global_batch_size
    if asked is None:
        asked = batch_of(recipe).global_batch
    peak = build_learning_rate(
        recipe,
        global_batch=asked,
        updates_per_epoch=Fraction(_NOMINAL_UPDATES),
        total_updates=_NOMINAL_UPDATES,
    ).peak
    # With a small batch, large steps would diverge and amplify rounding at every update.
    rate = peak * _RATE_SHARE * min(1.0, batch.global_batch / asked)
    note = f"{rate:.6g}, constant (the recipe's {peak:.6g} is for batches of {asked} in a longer training)"
    changes = {
        "compile": "off",
        "device": "cpu",
        "ema": None,
        "fp_exceptions": False,
        "half_partials": False,
        "head_first_epochs": 0,
        "learning_rate": rate,
        "lr_schedule": "const",
        "lr_schedule_params": LrScheduleParams(),
        "lr_staircase": False,
        "lr_warmup_params": None,
        "max_updates": updates,
        # An epoch may have fewer samples than an update, down to one.
        "num_epochs": updates * batch.global_batch,
        "num_workers": 0,
        "precision": "32.32",
        "precision_list": None,
        "stochastic_rounding": False,
        "validation": False,
        "weight_updates_per_epoch": None,
        **defaults_with(Fact.PACE),
    }
    return recipe.model_copy(update=changes), note


def _idle_warnings(given: Given) -> Sequence[str]:
    """Warnings about options that were given but have no effect on `verify`."""
    idle = idle_warnings(given, command="verify", measurement=Measuring.VERIFY)
    compiles = any(option.get("compile") for option in given.recipe.stage_options)
    if compiles and given.is_typed("stage_options"):
        idle.append("compile in --stage-options has no effect on verify.")
    return idle
