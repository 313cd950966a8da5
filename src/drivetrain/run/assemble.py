"""Puts the parts of a run together: data, model, feed, program."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from drivetrain.cluster.devices import Device
from drivetrain.data.feed import EvaluationFeed, fits_on_device, make_feed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.models.create import build_model
from drivetrain.plan.build import TrainingPlan
from drivetrain.program.build import build_program, build_task, probe_output
from drivetrain.program.evaluation import Evaluation, evaluate_model
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.schema import Recipe

_VALIDATION_PIXELS = 8 * 1024 * 1024
_LARGEST_VALIDATION_BATCH = 512


@dataclass(slots=True, kw_only=True)
class Assembly:
    """A program, how to validate it, and what was said while building it."""

    program: TrainingProgram
    evaluate: Callable[[], Evaluation] | None
    preprocess: Preprocess
    warnings: list[str]


def assemble(
    recipe: Recipe, *, data: DataSplits, model: nn.Module | None, plan: TrainingPlan, device: Device
) -> Assembly:
    """Builds what a recipe describes; nothing is written."""
    preprocess = Preprocess(data.spec, recipe.image_size)
    built = model if model is not None else model_of(recipe, data.spec)
    order = SampleOrder(
        seed=recipe.seed,
        samples=len(data.train),
        global_batch=plan.batch.global_batch,
        updates_per_epoch=plan.epochs.updates_per_epoch,
        remainder=recipe.remainder,
        shuffle=recipe.shuffle,
    )
    feed, warnings = make_feed(
        data.train,
        order=order,
        preprocess=preprocess,
        micro_batch_size=plan.batch.micro,
        device=device.torch_device,
        data_placement=recipe.data_placement,
        num_workers=recipe.num_workers,
        accelerator_side_preprocess=recipe.accelerator_side_preprocess,
        eight_bit_transfer=recipe.eight_bit_transfer,
        memory_budget_bytes=device.free_memory_bytes,
    )
    program = build_program(recipe, model=built, plan=plan, feed=feed, order=order, device=device)
    _check_output(program, data.spec, preprocess)
    evaluate = _evaluator(program, recipe, data.validation, preprocess) if recipe.validation else None
    return Assembly(program=program, evaluate=evaluate, preprocess=preprocess, warnings=warnings)


def model_of(recipe: Recipe, spec: DataSpec) -> nn.Module:
    """The recipe's model for these images, with its initial weights."""
    return build_model(
        recipe.model,
        channels=spec.channels,
        image_size=recipe.image_size or spec.height,
        num_classes=spec.num_classes,
        seed=recipe.seed,
        params=recipe.model_params,
    )


def validation_batch_size(recipe: Recipe, preprocess: Preprocess) -> int:
    """As many images as fill a comfortable number of pixels, unless the recipe says."""
    if recipe.validation_micro_batch_size is not None:
        return recipe.validation_micro_batch_size
    pixels = preprocess.channels * preprocess.height * preprocess.width
    return max(1, min(_LARGEST_VALIDATION_BATCH, _VALIDATION_PIXELS // pixels))


def _check_output(program: TrainingProgram, spec: DataSpec, preprocess: Preprocess) -> None:
    shape = (preprocess.channels, preprocess.height, preprocess.width)
    output = probe_output(program.model, shape=shape, device=program.device)
    program.task.check_output(output, batch=2, num_classes=spec.num_classes)


def _evaluator(
    program: TrainingProgram, recipe: Recipe, source: Source | None, preprocess: Preprocess
) -> Callable[[], Evaluation] | None:
    if source is None:
        return None
    feed = evaluation_feed(recipe, source=source, preprocess=preprocess, device=program.device)

    def evaluate() -> Evaluation:
        return evaluate_model(
            program.model, feed, task=build_task(recipe), wide_dtype=program.device.wide_dtype
        )

    return evaluate


def evaluation_feed(
    recipe: Recipe, *, source: Source, preprocess: Preprocess, device: Device
) -> EvaluationFeed:
    """Every sample of a source once, in batches this device runs well."""
    return EvaluationFeed(
        source,
        preprocess=preprocess,
        batch_size=validation_batch_size(recipe, preprocess),
        device=device.torch_device,
        resident=fits_on_device(source, preprocess=preprocess, memory_budget_bytes=device.free_memory_bytes),
    )
