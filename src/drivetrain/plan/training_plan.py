"""The plan of a recipe: its training in numbers for `train`, and all of it as plain values for `plan`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from drivetrain.catalogue.input_kinds import InputKind
from drivetrain.catalogue.models import output_margin_of
from drivetrain.core.errors import BadInputError
from drivetrain.optim.learning_rate import LearningRate, build_learning_rate
from drivetrain.plan.epochs import EpochPlan, plan_epochs
from drivetrain.plan.events import HostEvents, plan_host_events
from drivetrain.plan.inputs import known_inputs, planned_inputs
from drivetrain.plan.precision import precision_in_words
from drivetrain.recipe.layout import BatchArithmetic, batch_of, devices_per_replica, rank_count, stage_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.accumulation_check import check_accumulation

if TYPE_CHECKING:
    from drivetrain.models.summary import ModelTotals
    from drivetrain.pipeline.memory.outline import RunOutline
    from drivetrain.plan.stage_report import RunMemory

# Left out of plan.json, which describes images unless it says otherwise.
_USUAL_KIND = ("input_kind", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The numbers of a training: its batches, epochs, host events and learning rate."""

    batch: BatchArithmetic
    epochs: EpochPlan
    events: HostEvents
    learning_rate: LearningRate
    pipeline_warning: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Whatever differs from what the user asked for, or costs more than necessary."""
        pipeline = () if self.pipeline_warning is None else (self.pipeline_warning,)
        return (*self.batch.warnings, *self.epochs.warnings, *self.events.warnings, *pipeline)


def plan_training(recipe: Recipe, *, samples: int, warns_of_skipped: bool = True) -> TrainingPlan:
    """Plans a training on `samples` training samples, counted after splits and limits."""
    batch = batch_of(recipe)
    epochs = plan_epochs(
        samples=samples,
        batch=batch,
        remainder=recipe.remainder,
        weight_updates_per_epoch=recipe.weight_updates_per_epoch,
        num_epochs=recipe.num_epochs,
        max_updates=recipe.max_updates,
        warns_of_skipped=warns_of_skipped,
    )
    events = plan_host_events(
        batch=batch,
        epochs=epochs,
        logs_per_epoch=recipe.logs_per_epoch,
        log_every=recipe.log_every,
        steps_per_execution=recipe.steps_per_execution,
        evaluate_every=recipe.evaluate_every,
        checkpoint_every=recipe.checkpoint_every,
    )
    learning_rate = build_learning_rate(
        recipe,
        global_batch=batch.global_batch,
        updates_per_epoch=epochs.updates_per_epoch,
        total_updates=epochs.total_updates,
    )
    return TrainingPlan(
        batch=batch,
        epochs=epochs,
        events=events,
        learning_rate=learning_rate,
        pipeline_warning=check_accumulation(
            recipe.pipeline_schedule,
            stages=stage_count(recipe),
            accumulation=batch.accumulation,
            samples_each=None if recipe.global_batch_size is None else batch.micro * batch.replicas,
        ),
    )


def build_plan(resolved: ResolvedRecipe, *, lr_at: Sequence[int]) -> dict[str, Any]:
    """The plan of a recipe as plain values for JSON; what data need opening is known by their fingerprint."""
    return plan_of_run(look_into(resolved), lr_at=lr_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """What is known of a run before it starts: its numbers, its images, and its model without memory."""

    resolved: ResolvedRecipe
    training: TrainingPlan
    shape: "InputShape"
    totals: "ModelTotals"
    outline: "RunOutline"
    block_factors: Mapping[str, float]
    warnings: Sequence[str]

    @property
    def recipe(self) -> Recipe:
        """The recipe that is planned."""
        return self.resolved.recipe


def look_into(resolved: ResolvedRecipe) -> PlannedRun:
    """Builds the model of a recipe and plans its training, without opening data whose size is known."""
    recipe = resolved.recipe
    if resolved.fingerprint is None:
        inputs = planned_inputs(recipe, origins=resolved.origins)
    else:
        inputs = known_inputs(recipe, resolved.fingerprint)
    training = plan_training(recipe, samples=inputs.samples, warns_of_skipped=not resolved.skips_by_rule)
    shape = InputShape(
        channels=inputs.channels,
        image_size=inputs.image_size,
        num_classes=inputs.num_classes,
        input_kind=inputs.input_kind,
        width=inputs.width,
    )
    model = _outlined_model(recipe, shape, training.batch)
    return PlannedRun(
        resolved=resolved,
        training=training,
        shape=shape,
        totals=model.totals,
        outline=model.outline,
        block_factors=model.block_factors,
        warnings=[*resolved.warnings, *inputs.warnings, *training.warnings, *model.warnings],
    )


def plan_of_run(
    planned: PlannedRun, *, lr_at: Sequence[int], memory: "RunMemory | None" = None
) -> dict[str, Any]:
    """A planned run as plain values for JSON; `memory` is given if it is predicted already."""
    return plan_to_json(
        planned.recipe,
        planned.training,
        shape=planned.shape,
        totals=planned.totals,
        warnings=planned.warnings,
        lr_at=lr_at,
        outline=planned.outline,
        block_factors=planned.block_factors,
        memory=memory,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShape:
    """The image shape and number of classes that a model is built for; a signal's length is `image_size`.

    `width` is given of images that are not square; `image_size` is then their height.
    """

    channels: int
    image_size: int
    num_classes: int
    input_kind: InputKind = "image"
    width: int | None = None


def plan_to_json(
    recipe: Recipe,
    training: TrainingPlan,
    *,
    shape: InputShape,
    totals: "ModelTotals",
    warnings: Sequence[str],
    lr_at: Sequence[int] = (),
    outline: "RunOutline | None" = None,
    block_factors: Mapping[str, float] | None = None,
    memory: "RunMemory | None" = None,
) -> dict[str, Any]:
    """A plan as plain values: the output of `plan --json` and the plan.json of a run.

    `outline` is given if the model is split into stages or the run saves memory. `block_factors` is given if
    blocks have learning rates of their own.
    """
    report = _outline_report(outline, memory)
    stage_warnings = report.pop("warnings", ())
    return {
        "batch": _batch(training.batch),
        "epoch": _epoch(training.epochs),
        "execution": _execution(training),
        "total_updates": training.epochs.total_updates,
        "learning_rate": _rates(training.learning_rate, lr_at=lr_at),
        "learning_rate_peak": training.learning_rate.peak,
        "learning_rate_origin": training.learning_rate.peak_origin,
        **({"learning_rate_factors": dict(block_factors)} if block_factors else {}),
        "input": _input(shape, model=recipe.model),
        "model": {"name": recipe.model, **asdict(totals)},
        "layout": _layout(recipe),
        "stages": [_whole_model(totals)],
        **report,
        "optimizer": recipe.optimizer,
        "precision": precision_in_words(recipe),
        "events": {
            "log": training.events.log_updates,
            "validate": float(training.events.evaluate_updates),
            "checkpoint": training.events.checkpoint_updates,
        },
        **({"normalised_set": _normalised_set(recipe, training.batch)} if totals.buffers else {}),
        "warnings": [*warnings, *stage_warnings],
    }


def _input(shape: InputShape, *, model: str) -> dict[str, Any]:
    """`image_size` is the side of the output; `margin` is the extra input on each side, in pixels."""
    margin = output_margin_of(model)
    usual = (_USUAL_KIND, ("width", None))
    values = {name: value for name, value in asdict(shape).items() if (name, value) not in usual}
    return {**values, **({"margin": margin} if margin else {})}


def _normalised_set(recipe: Recipe, batch: BatchArithmetic) -> int:
    """The number of samples over which batch norm computes its statistics."""
    return batch.micro * recipe.dbn_replica_group_size


def _batch(batch: BatchArithmetic) -> dict[str, int]:
    return {
        "micro": batch.micro,
        "replicas": batch.replicas,
        "accumulation": batch.accumulation,
        "global": batch.global_batch,
    }


def _epoch(epochs: EpochPlan) -> dict[str, int]:
    return {
        "samples": epochs.samples,
        "weight_updates": epochs.weight_updates,
        "micro_batches": epochs.micro_batches,
        "samples_unused": epochs.samples_unused,
    }


def _execution(training: TrainingPlan) -> dict[str, float]:
    updates = training.events.execution_updates
    return {
        "micro_batches": updates * training.batch.accumulation,
        "weight_updates": updates,
        "logs_per_epoch": training.events.logs_per_epoch,
    }


def _rates(learning_rate: LearningRate, *, lr_at: Sequence[int]) -> dict[str, float]:
    if any(update < 0 for update in lr_at):
        raise BadInputError(f"--lr-at {min(lr_at)} is not an update; updates are counted from 0.")
    return {str(update): learning_rate.at(update) for update in lr_at}


def _layout(recipe: Recipe) -> dict[str, int]:
    return {
        "replicas": recipe.replicas,
        "stages": stage_count(recipe),
        "devices": devices_per_replica(recipe),
        "ranks": rank_count(recipe),
    }


def _whole_model(totals: "ModelTotals") -> dict[str, int]:
    """The only stage of a model that is not split."""
    return {
        "index": 0,
        "device": 0,
        "parameters": totals.parameters,
        "flops": totals.flops,
        "sent_bytes": 0,
    }


def _outline_report(outline: "RunOutline | None", memory: "RunMemory | None") -> dict[str, Any]:
    if outline is None:
        return {}
    from drivetrain.plan.stage_report import report_run

    return report_run(outline, memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutlinedModel:
    totals: "ModelTotals"
    warnings: Sequence[str]
    block_factors: Mapping[str, float]
    outline: "RunOutline"


def _outlined_model(recipe: Recipe, shape: InputShape, batch: BatchArithmetic) -> _OutlinedModel:
    from drivetrain.layers.batch_norm import idle_norm_options
    from drivetrain.models.from_recipe import outline_model
    from drivetrain.models.memory_format import choose_memory_format
    from drivetrain.models.summary import summarise_model
    from drivetrain.optim.block_rates import block_factors, check_block_rates
    from drivetrain.pipeline.memory.outline import outline_of

    model = outline_model(
        recipe,
        channels=shape.channels,
        image_size=shape.image_size,
        num_classes=shape.num_classes,
        input_kind=shape.input_kind,
    )
    margin = 2 * output_margin_of(recipe.model)
    width = (shape.width or shape.image_size) + margin
    check_block_rates(recipe, model)
    height = shape.image_size + margin if shape.input_kind == "image" else 1
    totals = summarise_model(model, channels=shape.channels, image_size=height, width=width)
    images = (shape.channels, height, width)
    warnings = [
        *idle_norm_options(recipe, model),
        *choose_memory_format(recipe, model, image_shape=images),
    ]
    stages = None
    if stage_count(recipe) > 1 or recipe.recomputation:
        from drivetrain.pipeline.cutting.stage_plan import plan_stages

        planned = recipe.model_copy(update={"split_by": "cost"}) if recipe.split_by == "time" else recipe
        stages = plan_stages(
            planned, model, image_shape=images, micro=batch.micro, accumulation=batch.accumulation
        )
        if recipe.split_by == "time":
            warnings.append(
                "--split-by time measures the layers when training starts; this plan splits by cost instead."
            )
    return _OutlinedModel(
        totals=totals,
        warnings=warnings,
        block_factors=block_factors(recipe, model),
        outline=outline_of(recipe, model, plan=stages, images=(batch.micro, *images)),
    )
